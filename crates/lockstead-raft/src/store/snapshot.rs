//! Snapshots as files.
//!
//! `snapshots/<index>-<term>.snap` of the label's log id, 20 digits each: magic (7), version (1), cluster id (16, 0
//! until known), CRC-32 of all other bytes (4), bincode of openraft's meta, then the data as it travels between nodes:
//! version (1), bincode of `built_at` and the residue. Numbers are little-endian.
//!
//! Invariant: what a snapshot holds is a residue; no hold, token or owner has a place in it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lockstead_core::{ClusterId, Residue};

use super::codec::decode_all;
use super::disk::sync_dir;
use super::seal::{Seal, Why, newer};
use crate::OpenError;
use crate::identity::ClusterCell;
use crate::types::{LogId, SnapshotData, SnapshotMeta};

/// Other bytes at the beginning are damage, whatever version they would name.
const MAGIC: &[u8; 7] = b"LOCKSNP";
const SEAL: Seal = Seal { version: 1, version_at: 7, crc_at: 24 };
const CLUSTER_AT: usize = 8;
const HEAD_BYTES: usize = 28;
const DATA_VERSION: u8 = 1;
/// Files kept: the newest and the one before.
const FILES_MAX: usize = 2;

/// A snapshot on disk, and what it says.
#[derive(Clone, Debug)]
pub(super) struct StoredSnapshot {
    pub(super) meta: SnapshotMeta,
    pub(super) data: SnapshotData,
    pub(super) file_bytes: u64,
}

/// What a snapshot's data says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// The log index below which a table built from it is the state of no moment.
    pub(super) built_at: u64,
    pub(super) residue: Residue,
}

impl Contents {
    pub(super) fn encode(&self) -> SnapshotData {
        let mut bytes = vec![DATA_VERSION];
        encode_onto(&mut bytes, &(self.built_at, &self.residue));
        bytes
    }

    pub(super) fn decode(data: &[u8]) -> Result<Self, Why> {
        match data.split_first() {
            Some((&DATA_VERSION, rest)) => {
                let (built_at, residue) = decode_all(rest)?;
                Ok(Self { built_at, residue })
            }
            Some((version, _)) if *version > DATA_VERSION => {
                Err(Why::Newer(newer((*version).into(), DATA_VERSION.into())))
            }
            Some((version, _)) => Err(format!("its data is of version {version}").into()),
            None => Err("it is empty".into()),
        }
    }
}

/// Why a file is no snapshot for this node.
enum Unusable {
    /// It is not what was written: an older one may do.
    Damaged(String),
    /// It is intact, but of another version or cluster: nothing else will do.
    Foreign(Why),
}

impl From<Why> for Unusable {
    fn from(why: Why) -> Self {
        match why {
            Why::Damaged(why) => Self::Damaged(why),
            newer @ Why::Newer(_) => Self::Foreign(newer),
        }
    }
}

/// The directory of snapshots.
pub(super) struct SnapshotFiles {
    dir: PathBuf,
    cluster: ClusterCell,
    /// One write at a time.
    writing: Mutex<()>,
}

impl SnapshotFiles {
    /// Makes the directory if it is missing, and removes what was never finished.
    pub(super) fn open(dir: &Path, cluster: ClusterCell) -> Result<Self, OpenError> {
        let files = Self { dir: dir.to_owned(), cluster, writing: Mutex::new(()) };
        files.prepare().map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
        Ok(files)
    }

    /// The newest intact snapshot, if there is one. It reaches `purged`, up to which the log is gone.
    ///
    /// A damaged one is set aside under the suffix `damaged` if an older one will do as well.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] with the file's name if none will, or if a file is of a cluster that is not ours;
    /// [`OpenError::Newer`] if one is of a version that is newer than ours.
    pub(super) fn load(&self, purged: Option<LogId>) -> Result<Option<StoredSnapshot>, OpenError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        let mut damaged: Vec<(PathBuf, String)> = Vec::new();
        let mut found = None;
        for path in self.names().map_err(io(&self.dir))?.into_iter().rev() {
            match self.decode(&path, &std::fs::read(&path).map_err(io(&path))?) {
                Ok(snapshot) => {
                    found = Some(snapshot);
                    break;
                }
                Err(Unusable::Damaged(why)) => damaged.push((path, why)),
                Err(Unusable::Foreign(why)) => return Err(why.refuse(path)),
            }
        }
        let reaches = found.as_ref().and_then(|snapshot| snapshot.meta.last_log_id) >= purged;
        match damaged.first() {
            None if reaches => Ok(found),
            None => {
                let why = format!("no snapshot reaches log id {}, up to which the log was purged", shown(purged));
                Err(OpenError::Damaged { file: self.dir.clone(), why })
            }
            Some((file, why)) if found.is_none() || !reaches => {
                Err(OpenError::Damaged { file: file.clone(), why: why.clone() })
            }
            Some(_) => {
                damaged.iter().try_for_each(|(path, why)| set_aside(path, why)).map_err(io(&self.dir))?;
                Ok(found)
            }
        }
    }

    /// Writes a snapshot durably, and removes all but the newest two. Blocks.
    pub(super) fn persist(&self, meta: &SnapshotMeta, data: &[u8]) -> io::Result<StoredSnapshot> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.dir.join(file_name(meta));
        let bytes = self.encode(meta, data);
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &path)?;
        sync_dir(&self.dir)?;
        self.prune()?;
        Ok(StoredSnapshot { meta: meta.clone(), data: data.to_vec(), file_bytes: bytes.len() as u64 })
    }

    fn prepare(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        for item in std::fs::read_dir(&self.dir)? {
            let path = item?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn prune(&self) -> io::Result<()> {
        let mut paths = self.names()?;
        paths.truncate(paths.len().saturating_sub(FILES_MAX));
        paths.into_iter().try_for_each(std::fs::remove_file)
    }

    /// The snapshot files, oldest label first.
    fn names(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for item in std::fs::read_dir(&self.dir)? {
            let path = item?.path();
            if path.extension().is_some_and(|extension| extension == "snap") {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn encode(&self, meta: &SnapshotMeta, data: &[u8]) -> Vec<u8> {
        let cluster = self.cluster.get().map_or(0, |cluster| cluster.0);
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[CLUSTER_AT..SEAL.crc_at].copy_from_slice(&cluster.to_le_bytes());
        encode_onto(&mut bytes, meta);
        bytes.extend(data);
        SEAL.put(&mut bytes);
        bytes
    }

    fn decode(&self, path: &Path, bytes: &[u8]) -> Result<StoredSnapshot, Unusable> {
        if !bytes.starts_with(MAGIC) {
            return Err(Unusable::Damaged("it does not begin as a snapshot does".to_owned()));
        }
        SEAL.check(bytes)?;
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let cluster = head[CLUSTER_AT..SEAL.crc_at].iter().rev().fold(0, |id, byte| id << 8 | u128::from(*byte));
        self.check_cluster(cluster).map_err(Unusable::Foreign)?;
        let (meta, used) = bincode::serde::decode_from_slice(rest, bincode::config::standard())
            .map_err(|error| Unusable::Damaged(error.to_string()))?;
        let data = rest[used..].to_vec();
        Contents::decode(&data).map_err(Unusable::Foreign)?;
        if path.file_name().is_none_or(|name| *name != *file_name(&meta)) {
            return Err(Unusable::Damaged(format!("it is the snapshot {}", file_name(&meta))));
        }
        Ok(StoredSnapshot { meta, data, file_bytes: bytes.len() as u64 })
    }

    fn check_cluster(&self, found: u128) -> Result<(), Why> {
        match self.cluster.get() {
            Some(cluster) if found != 0 && cluster.0 != found => {
                Err(format!("it belongs to cluster {}, not to {cluster}", ClusterId(found)).into())
            }
            _ => Ok(()),
        }
    }
}

fn set_aside(path: &Path, why: &str) -> io::Result<()> {
    let aside = path.with_extension("damaged");
    tracing::error!(file = %path.display(), why, aside = %aside.display(), "a snapshot is damaged; an older one will do");
    std::fs::rename(path, aside)
}

fn shown(log_id: Option<LogId>) -> String {
    log_id.map_or_else(|| "none".to_owned(), |log_id| log_id.to_string())
}

fn file_name(meta: &SnapshotMeta) -> String {
    let (index, term) = meta.last_log_id.map_or((0, 0), |id| (id.index(), id.committed_leader_id().term));
    format!("{index:020}-{term:020}.snap")
}

fn encode_onto<T: serde::Serialize>(bytes: &mut Vec<u8>, value: &T) {
    bincode::serde::encode_into_std_write(value, bytes, bincode::config::standard())
        .expect("snapshots hold only types that bincode encodes, and a Vec takes all bytes");
}
