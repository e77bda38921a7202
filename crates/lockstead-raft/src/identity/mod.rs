//! Who this node is: `identity.json` in its data directory, guarded by a kernel lock.
//!
//! Invariants:
//! 1. One process at a time uses a data directory.
//! 2. `starts` is higher than at any start before, durably, before anybody hears of it.
//! 3. Node id and incarnation never change; a cluster id, once known, changes only by a recovery, and the home of log
//!    and snapshots with it, in one step.

mod stored;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lockstead_core::{ClusterId, Incarnation, NodeId};
use lockstead_flock::{AcquireError, AcquireOptions, FileLock, Owner, acquire};

use self::stored::{Part, Stored, VERSION, read, write};
use crate::OpenError;

const FILE: &str = "identity.json";
const LOCK_FILE: &str = "lock";
const LOG_DIR: &str = "log";
const SNAPSHOT_DIR: &str = "snapshots";
const HOME_PREFIX: &str = "lineage-";

/// Whether a data directory has been a node's: one that has is never founded, restored or joined anew.
#[must_use]
pub fn has_node(data_dir: &Path) -> bool {
    data_dir.join(FILE).exists()
}

/// The lineage of a node, shared: empty until the node has joined one.
pub(crate) type ClusterCell = Arc<OnceLock<ClusterId>>;

/// A data directory in use by this process, which stays its only user as long as this lives.
#[derive(Debug)]
pub(crate) struct Identity {
    dir: PathBuf,
    node_id: NodeId,
    incarnation: Incarnation,
    starts: u64,
    /// Where log and snapshots lie: a recovered node's are in a directory of their own.
    home: Option<String>,
    cluster: ClusterCell,
    /// Held while the file is written.
    part: Mutex<Part>,
    _lock: FileLock,
}

/// Why a node could not be made part of a lineage.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetClusterError {
    /// It is part of another; nothing was changed.
    #[error("this node belongs to cluster {0}")]
    Other(ClusterId),
    /// It was interrupted while it founded one that begins otherwise; nothing was changed.
    #[error(
        "this node was interrupted while it founded a cluster from another backup, or from none: empty its data directory first"
    )]
    OtherOrigin,
    /// The disk refuses; the process has to end.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What a lineage that this node founds begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nothing.
    Nothing,
    /// The backup with this checksum.
    Backup(u32),
}

/// A place for the log and the snapshots of a lineage, in the data directory.
#[derive(Debug)]
pub(crate) struct Home {
    name: String,
    dir: PathBuf,
}

impl Home {
    pub(crate) fn snapshot_dir(&self) -> PathBuf {
        self.dir.join(SNAPSHOT_DIR)
    }
}

impl Identity {
    /// Takes the data directory, which is made if missing, and counts this start. Blocks.
    ///
    /// # Errors
    /// [`OpenError`]: in use, of another node, damaged, or refused by the system; nothing was changed then.
    pub(crate) fn open(data_dir: &Path, node_id: NodeId) -> Result<Self, OpenError> {
        make_data_dir(data_dir)?;
        let lock = lock(data_dir, node_id)?;
        let mut stored = read(data_dir, node_id)?;
        let home = home_dir(data_dir, stored.home.as_deref());
        if !home.is_dir() {
            return Err(OpenError::Damaged { file: home, why: "it is missing, with log and snapshots".to_owned() });
        }
        make_home(&home)?;
        stored.starts += 1;
        let file = data_dir.join(FILE);
        write(data_dir, &stored).map_err(|source| OpenError::Io { path: file.clone(), source })?;
        Self::from_stored(&stored, data_dir, lock).map_err(|why| OpenError::Damaged { file, why })
    }

    /// Takes a data directory that has a node, whichever, without a start; `None` if there is none. Blocks.
    ///
    /// # Errors
    /// As [`Identity::open`].
    pub(crate) fn reopen(data_dir: &Path) -> Result<Option<Self>, OpenError> {
        let file = data_dir.join(FILE);
        let node_id = match std::fs::read(&file) {
            Ok(text) => Stored::parse(&file, &text)?.node_id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(OpenError::Io { path: file, source }),
        };
        let lock = lock(data_dir, node_id)?;
        let stored = read(data_dir, node_id)?;
        Self::from_stored(&stored, data_dir, lock).map(Some).map_err(|why| OpenError::Damaged { file, why })
    }

    /// Whose directory it is.
    pub(crate) fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// The id of the directory.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How often the directory was taken, this time included.
    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }

    /// The lineage, once joined.
    pub(crate) fn cluster_id(&self) -> Option<ClusterId> {
        self.cluster.get().copied()
    }

    /// The lineage, for others to watch.
    pub(crate) fn cluster_cell(&self) -> ClusterCell {
        Arc::clone(&self.cluster)
    }

    /// The file that says all this.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Where the log lies.
    pub(crate) fn log_dir(&self) -> PathBuf {
        home_dir(&self.dir, self.home.as_deref()).join(LOG_DIR)
    }

    /// Where snapshots lie.
    pub(crate) fn snapshot_dir(&self) -> PathBuf {
        home_dir(&self.dir, self.home.as_deref()).join(SNAPSHOT_DIR)
    }

    /// Makes a place for another lineage, beside the present one; what an interrupted call left is removed. Blocks.
    ///
    /// # Errors
    /// [`OpenError::Io`].
    pub(crate) fn prepare_home(&self, cluster: ClusterId) -> Result<Home, OpenError> {
        let io = |source| OpenError::Io { path: self.dir.clone(), source };
        self.remove_unused_homes().map_err(io)?;
        let name = format!("{HOME_PREFIX}{cluster}");
        let dir = self.dir.join(&name);
        make_home(&dir)?;
        sync_dir(&dir).and_then(|()| sync_dir(&self.dir)).map_err(io)?;
        Ok(Home { name, dir })
    }

    /// A home with an empty log was never moved to.
    fn remove_unused_homes(&self) -> io::Result<()> {
        for item in std::fs::read_dir(&self.dir)? {
            let item = item?;
            let is_home = item.file_name().to_string_lossy().starts_with(HOME_PREFIX);
            if is_home && self.home.as_deref() != item.file_name().to_str() && !is_used(&item.path().join(LOG_DIR))? {
                std::fs::remove_dir_all(item.path())?;
            }
        }
        Ok(())
    }

    /// Makes this node the founder of another lineage that lies in `home`, durably and in one step. Blocks.
    ///
    /// # Errors
    /// [`SetClusterError::Io`].
    pub(crate) fn move_to(&self, home: Home, cluster: ClusterId) -> Result<(), SetClusterError> {
        let part = Part { founder: true, ..Part::default() };
        let stored = Stored { home: Some(home.name), ..self.stored(Some(cluster), part) };
        write(&self.dir, &stored).map_err(|source| SetClusterError::Io { path: self.dir.join(FILE), source })
    }

    /// Makes this node part of a lineage, durably. Repeating it is harmless. Blocks.
    ///
    /// # Errors
    /// [`SetClusterError`].
    pub(crate) fn set_cluster(&self, cluster: ClusterId) -> Result<(), SetClusterError> {
        let part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        match self.cluster_id() {
            Some(known) if known == cluster => Ok(()),
            Some(known) => Err(SetClusterError::Other(known)),
            None => self.keep(Some(cluster), *part),
        }
    }

    /// Begins a lineage of this node's own, durably. Repeated by a node that was interrupted while it founded one, it
    /// keeps the id of the first time. Blocks.
    ///
    /// # Errors
    /// [`SetClusterError`]; a node that joined a lineage founds none.
    pub(crate) fn found_cluster(&self, cluster: ClusterId, origin: Origin) -> Result<(), SetClusterError> {
        let restored_from = match origin {
            Origin::Nothing => None,
            Origin::Backup(checksum) => Some(checksum),
        };
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        match self.cluster_id() {
            Some(_) if part.founder && part.restored_from == restored_from => Ok(()),
            Some(_) if part.founder => Err(SetClusterError::OtherOrigin),
            Some(known) => Err(SetClusterError::Other(known)),
            None => {
                *part = Part { founder: true, restored_from, ..*part };
                self.keep(Some(cluster), *part)
            }
        }
    }

    /// The checksum of the backup with which its lineage began, if this node founded it from one.
    pub(crate) fn restored_from(&self) -> Option<u32> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).restored_from
    }

    /// Whether this node joins as a voter and was not promoted yet.
    pub(crate) fn is_joining(&self) -> bool {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).joining
    }

    /// Says durably whether this node still joins as a voter. Blocks.
    ///
    /// # Errors
    /// [`SetClusterError::Io`].
    pub(crate) fn set_joining(&self, joining: bool) -> Result<(), SetClusterError> {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        if part.joining == joining {
            return Ok(());
        }
        part.joining = joining;
        self.keep(self.cluster_id(), *part)
    }

    /// Whether the log is known to hold a membership.
    pub(crate) fn has_log(&self) -> bool {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).has_log
    }

    /// Says durably that the log holds a membership: from now on an empty one is damage. Blocks.
    ///
    /// # Errors
    /// [`SetClusterError::Io`].
    pub(crate) fn set_has_log(&self) -> Result<(), SetClusterError> {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        if part.has_log {
            return Ok(());
        }
        part.has_log = true;
        self.keep(self.cluster_id(), *part)
    }

    fn keep(&self, cluster: Option<ClusterId>, part: Part) -> Result<(), SetClusterError> {
        let stored = self.stored(cluster, part);
        write(&self.dir, &stored).map_err(|source| SetClusterError::Io { path: self.dir.join(FILE), source })?;
        if let Some(cluster) = cluster {
            self.cluster.get_or_init(|| cluster);
        }
        Ok(())
    }
}

impl Identity {
    fn from_stored(stored: &Stored, dir: &Path, lock: FileLock) -> Result<Self, String> {
        Ok(Self {
            dir: dir.to_owned(),
            node_id: stored.node_id,
            incarnation: stored.incarnation()?,
            starts: stored.starts,
            home: stored.home.clone(),
            cluster: Arc::new(stored.cluster_id()?.map_or_else(OnceLock::new, OnceLock::from)),
            part: Mutex::new(stored.part),
            _lock: lock,
        })
    }

    fn stored(&self, cluster: Option<ClusterId>, part: Part) -> Stored {
        Stored {
            version: VERSION,
            cluster_id: cluster.map(|cluster| cluster.to_string()),
            node_id: self.node_id,
            incarnation: self.incarnation.to_string(),
            starts: self.starts,
            home: self.home.clone(),
            part,
        }
    }
}

fn home_dir(data_dir: &Path, home: Option<&str>) -> PathBuf {
    home.map_or_else(|| data_dir.to_owned(), |home| data_dir.join(home))
}

fn make_home(dir: &Path) -> Result<(), OpenError> {
    for dir in [dir.join(LOG_DIR), dir.join(SNAPSHOT_DIR)] {
        std::fs::create_dir_all(&dir).map_err(|source| OpenError::Io { path: dir, source })?;
    }
    Ok(())
}

fn make_data_dir(data_dir: &Path) -> Result<(), OpenError> {
    std::fs::create_dir_all(data_dir).map_err(|source| OpenError::Io { path: data_dir.to_owned(), source })?;
    // A bare name has no parent to speak of but the current directory.
    let parent = data_dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_dir(parent).map_err(|source| OpenError::Io { path: parent.to_owned(), source })
}

fn lock(data_dir: &Path, node_id: NodeId) -> Result<FileLock, OpenError> {
    let path = data_dir.join(LOCK_FILE);
    let owner = Owner { id: format!("node {node_id}"), kind: "lockstead".into(), ..Owner::default() };
    let lock = acquire(&path, AcquireOptions { owner, ..AcquireOptions::default() }).map_err(|error| match error {
        AcquireError::LockHeld { holder, .. } => {
            OpenError::InUse { path: data_dir.to_owned(), holder: holder.to_string() }
        }
        AcquireError::PermissionDenied { path, source } | AcquireError::Io { path, source } => {
            OpenError::Io { path, source }
        }
        other => OpenError::Io { path, source: io::Error::other(other) },
    })?;
    if let Some(warning) = lock.warning() {
        tracing::warn!("the data directory may be opened by another machine at the same time: {warning}");
    }
    Ok(lock)
}

/// Whether anything lies in a directory. One that is missing is empty.
fn is_used(dir: &Path) -> io::Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut items) => Ok(items.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path, node_id: NodeId) -> Result<Identity, OpenError> {
        Identity::open(dir, node_id)
    }

    #[test]
    fn a_new_directory_gets_an_identity_that_stays() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir.path().join("data"), 3).unwrap();
        assert_eq!((first.node_id(), first.starts(), first.cluster_id()), (3, 1, None));
        let incarnation = first.incarnation();
        drop(first);
        let second = open(&dir.path().join("data"), 3).unwrap();
        assert_eq!((second.starts(), second.incarnation()), (2, incarnation));
        assert!(second.log_dir().is_dir() && second.snapshot_dir().is_dir());
    }

    #[test]
    fn two_directories_differ_in_their_incarnation() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_ne!(open(one.path(), 1).unwrap().incarnation(), open(two.path(), 1).unwrap().incarnation());
    }

    #[test]
    fn a_directory_in_use_is_refused_with_pid_and_begin_of_its_use_and_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), 1).unwrap();
        let error = open(dir.path(), 1).unwrap_err();
        let expected = format!("pid {} (lockstead node 1), since 20", std::process::id());
        assert!(matches!(&error, OpenError::InUse { holder, .. } if holder.starts_with(&expected)), "{error}");
        drop(first);
        assert_eq!(open(dir.path(), 1).unwrap().starts(), 2);
    }

    #[test]
    fn the_directory_of_another_node_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), 1).unwrap());
        assert!(matches!(open(dir.path(), 2), Err(OpenError::OtherNode { found: 1, asked: 2, .. })));
        assert_eq!(open(dir.path(), 1).unwrap().starts(), 2);
    }

    #[test]
    fn a_cluster_once_set_is_kept_and_never_changed() {
        let dir = tempfile::tempdir().unwrap();
        let identity = open(dir.path(), 1).unwrap();
        let cell = identity.cluster_cell();
        identity.set_cluster(ClusterId(7)).unwrap();
        identity.set_cluster(ClusterId(7)).unwrap();
        assert!(matches!(identity.set_cluster(ClusterId(8)), Err(SetClusterError::Other(ClusterId(7)))));
        assert_eq!(cell.get(), Some(&ClusterId(7)));
        drop(identity);
        let again = open(dir.path(), 1).unwrap();
        assert_eq!((again.cluster_id(), again.starts()), (Some(ClusterId(7)), 2));
    }

    #[test]
    fn a_founder_keeps_its_first_id_and_a_member_founds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), 1).unwrap().found_cluster(ClusterId(7), Origin::Nothing).unwrap();
        let again = open(dir.path(), 1).unwrap();
        again.found_cluster(ClusterId(8), Origin::Nothing).unwrap();
        assert_eq!(again.cluster_id(), Some(ClusterId(7)));
        let member_dir = tempfile::tempdir().unwrap();
        let member = open(member_dir.path(), 2).unwrap();
        member.set_cluster(ClusterId(7)).unwrap();
        let founded = member.found_cluster(ClusterId(8), Origin::Nothing);
        assert!(matches!(founded, Err(SetClusterError::Other(ClusterId(7)))));
    }

    #[test]
    fn a_founder_that_was_interrupted_goes_on_from_the_same_backup_only() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), 1).unwrap().found_cluster(ClusterId(7), Origin::Backup(3)).unwrap();
        let again = open(dir.path(), 1).unwrap();
        for origin in [Origin::Nothing, Origin::Backup(4)] {
            assert!(matches!(again.found_cluster(ClusterId(8), origin), Err(SetClusterError::OtherOrigin)));
        }
        again.found_cluster(ClusterId(8), Origin::Backup(3)).unwrap();
        assert_eq!((again.cluster_id(), again.restored_from()), (Some(ClusterId(7)), Some(3)));
    }

    #[test]
    fn a_node_that_moves_to_another_lineage_leaves_the_old_one_where_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let founder = open(dir.path(), 3).unwrap();
        founder.found_cluster(ClusterId(7), Origin::Nothing).unwrap();
        std::fs::write(founder.log_dir().join("old"), "x").unwrap();
        drop(founder);
        let reopened = Identity::reopen(dir.path()).unwrap().unwrap();
        assert_eq!((reopened.node_id(), reopened.starts()), (3, 1));
        // Killed before it moved.
        drop(reopened.prepare_home(ClusterId(8)).unwrap());
        let home = reopened.prepare_home(ClusterId(9)).unwrap();
        reopened.move_to(home, ClusterId(9)).unwrap();
        drop(reopened);
        let moved = open(dir.path(), 3).unwrap();
        assert_eq!((moved.cluster_id(), moved.starts()), (Some(ClusterId(9)), 2));
        assert!(!is_used(&moved.log_dir()).unwrap() && dir.path().join(LOG_DIR).join("old").is_file());
        assert!(!dir.path().join(format!("{HOME_PREFIX}{}", ClusterId(8))).exists());
        assert!(dir.path().join(format!("{HOME_PREFIX}{}", ClusterId(9))).join(LOG_DIR).is_dir());
    }

    #[test]
    fn a_directory_without_a_node_is_not_reopened_and_not_made() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Identity::reopen(&dir.path().join("none")).unwrap().is_none());
        assert!(!dir.path().join("none").exists());
    }

    #[test]
    fn a_node_that_was_killed_while_it_joined_still_joins() {
        let dir = tempfile::tempdir().unwrap();
        let identity = open(dir.path(), 2).unwrap();
        identity.set_joining(true).unwrap();
        identity.set_cluster(ClusterId(7)).unwrap();
        drop(identity);
        let again = open(dir.path(), 2).unwrap();
        assert!(again.is_joining());
        again.set_joining(false).unwrap();
        drop(again);
        let promoted = open(dir.path(), 2).unwrap();
        assert_eq!((promoted.is_joining(), promoted.cluster_id()), (false, Some(ClusterId(7))));
    }

    #[test]
    fn an_identity_that_cannot_be_read_or_is_missing_beside_a_log_is_damage() {
        for text in ["", "{}", "{\"version\":1", "{\"version\":1}", "{\"version\":0}", "garbage"] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(FILE), text).unwrap();
            assert!(matches!(open(dir.path(), 1), Err(OpenError::Damaged { .. })), "{text}");
        }
        for log_dir in [LOG_DIR.to_owned(), format!("{HOME_PREFIX}7/{LOG_DIR}")] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join(&log_dir)).unwrap();
            std::fs::write(dir.path().join(&log_dir).join("db"), "x").unwrap();
            let error = open(dir.path(), 1).unwrap_err();
            assert!(matches!(&error, OpenError::Damaged { file, .. } if file.ends_with(FILE)), "{error}");
        }
    }

    #[test]
    fn an_identity_lies_in_these_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let stored = Stored {
            version: 1,
            cluster_id: Some(ClusterId(0x1f).to_string()),
            node_id: 3,
            incarnation: Incarnation(0x2e).to_string(),
            starts: 5,
            home: Some("lineage-x".to_owned()),
            part: Part { founder: true, joining: false, has_log: true, restored_from: Some(7) },
        };
        let golden = r#"{
  "version": 1,
  "cluster_id": "0000000000000000000000000000001f",
  "node_id": 3,
  "incarnation": "000000000000002e",
  "starts": 5,
  "home": "lineage-x",
  "founder": true,
  "joining": false,
  "has_log": true,
  "restored_from": 7
}
"#;
        write(dir.path(), &stored).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join(FILE)).unwrap(), golden);
        std::fs::create_dir_all(dir.path().join("lineage-x").join(LOG_DIR)).unwrap();
        let opened = open(dir.path(), 3).unwrap();
        assert_eq!((opened.cluster_id(), opened.incarnation()), (Some(ClusterId(0x1f)), Incarnation(0x2e)));
        assert_eq!((opened.starts(), opened.has_log(), opened.is_joining()), (6, true, false));
        assert_eq!(opened.restored_from(), Some(7));
    }

    #[test]
    fn an_identity_of_a_newer_version_is_named_so_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let newer = "{\"version\":2,\"node\":\"other fields\"}";
        std::fs::write(dir.path().join(FILE), newer).unwrap();
        for refused in [open(dir.path(), 1).err(), Identity::reopen(dir.path()).err()] {
            let refused = refused.unwrap();
            assert!(matches!(&refused, OpenError::Newer { file, .. } if file.ends_with(FILE)), "{refused}");
            let said = refused.to_string();
            assert!(said.contains("of version 2, and this build knows version 1"), "{said}");
        }
        assert_eq!(std::fs::read_to_string(dir.path().join(FILE)).unwrap(), newer);
    }
}
