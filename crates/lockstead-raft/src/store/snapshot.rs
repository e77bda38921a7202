//! Snapshots as files.
//!
//! `snapshots/<index>-<term>.snap` of the label's log id, 20 digits each: version (1), cluster id (16, 0 until known),
//! CRC-32 of all other bytes (4), bincode of openraft's meta, then the data as it travels between nodes: version (1),
//! bincode of `built_at` and the residue. Numbers are little-endian.
//!
//! Invariant: what a snapshot holds is a residue; no hold, token or owner has a place in it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lockstead_core::{ClusterId, Residue};

use super::codec::{Why, decode_all};
use super::disk::sync_dir;
use crate::OpenError;
use crate::identity::ClusterCell;
use crate::types::{SnapshotData, SnapshotMeta};

const FILE_VERSION: u8 = 1;
const DATA_VERSION: u8 = 1;
const HEAD_BYTES: usize = 21;
const CRC_AT: usize = 17;
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
            Some((version, _)) => Err(format!("snapshot version {version} is unknown")),
            None => Err("it is empty".to_owned()),
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

    /// The newest snapshot, if there is one. Every file is checked.
    pub(super) fn load(&self) -> Result<Option<StoredSnapshot>, OpenError> {
        let mut newest = None;
        for path in self.names().map_err(|source| OpenError::Io { path: self.dir.clone(), source })? {
            let bytes = std::fs::read(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
            let snapshot = self.decode(&path, &bytes).map_err(|why| OpenError::Damaged { file: path, why })?;
            newest = Some(snapshot);
        }
        Ok(newest)
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
        let mut bytes = vec![FILE_VERSION];
        bytes.extend(cluster.to_le_bytes());
        bytes.extend([0; 4]);
        encode_onto(&mut bytes, meta);
        bytes.extend(data);
        let crc = crc(&bytes);
        bytes[CRC_AT..HEAD_BYTES].copy_from_slice(&crc);
        bytes
    }

    fn decode(&self, path: &Path, bytes: &[u8]) -> Result<StoredSnapshot, Why> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Err(format!("it has only {} bytes", bytes.len()));
        };
        if head[CRC_AT..] != crc(bytes) {
            return Err("its checksum is wrong".to_owned());
        }
        if head[0] != FILE_VERSION {
            return Err(format!("version {} is unknown", head[0]));
        }
        self.check_cluster(head[1..CRC_AT].iter().rev().fold(0, |id, byte| id << 8 | u128::from(*byte)))?;
        let (meta, used) =
            bincode::serde::decode_from_slice(rest, bincode::config::standard()).map_err(|error| error.to_string())?;
        let data = rest[used..].to_vec();
        Contents::decode(&data)?;
        if path.file_name().is_none_or(|name| *name != *file_name(&meta)) {
            return Err(format!("it is the snapshot {}", file_name(&meta)));
        }
        Ok(StoredSnapshot { meta, data, file_bytes: bytes.len() as u64 })
    }

    fn check_cluster(&self, found: u128) -> Result<(), Why> {
        match self.cluster.get() {
            Some(cluster) if found != 0 && cluster.0 != found => {
                Err(format!("it belongs to cluster {}, not to {cluster}", ClusterId(found)))
            }
            _ => Ok(()),
        }
    }
}

fn file_name(meta: &SnapshotMeta) -> String {
    let (index, term) = meta.last_log_id.map_or((0, 0), |id| (id.index(), id.committed_leader_id().term));
    format!("{index:020}-{term:020}.snap")
}

fn encode_onto<T: serde::Serialize>(bytes: &mut Vec<u8>, value: &T) {
    bincode::serde::encode_into_std_write(value, bytes, bincode::config::standard())
        .expect("snapshots hold only types that bincode encodes, and a Vec takes all bytes");
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CRC_AT]);
    hasher.update(&bytes[HEAD_BYTES..]);
    hasher.finalize().to_le_bytes()
}
