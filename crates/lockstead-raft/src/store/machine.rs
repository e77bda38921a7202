//! The replicated table as openraft's state machine. It is in memory only: a restart loads the newest snapshot and
//! replays the log behind it.
//!
//! Invariants:
//! 1. `table`, `last_applied` and `membership` change together, under one lock that is never held over an await.
//! 2. A snapshot's label is an index from which replaying the log rebuilds every live record; its log id is in the log,
//!    or is the last purged or last applied.
//! 3. Below `built_at` the table is the state of no moment ([`Machine::is_complete`]).

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::{Stream, TryStreamExt};
use lockstead_core::{Applied, Batch, Residue, Table};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};

use super::LogStore;
use super::snapshot::{Contents, SnapshotFiles, StoredSnapshot};
use crate::identity::ClusterCell;
use crate::plant::{self, Plant, planted};
use crate::types::{
    BatchBytes, Entry, EntryApplied, LogId, Membership, Snapshot, SnapshotData, SnapshotMeta, StoredMembership,
    TypeConfig,
};
use crate::{OpenError, SnapshotView};

/// The table and what belongs to it. Clones are one machine.
#[derive(Clone)]
pub(crate) struct StateMachine {
    machine: Arc<Mutex<Machine>>,
    pub(super) log: LogStore,
    files: Arc<SnapshotFiles>,
    /// Why a snapshot could not be written.
    fault: Arc<OnceLock<String>>,
}

/// The state of one moment.
#[derive(Default)]
pub(crate) struct Machine {
    /// The locks.
    pub(crate) table: Table,
    /// The last entry applied.
    pub(crate) last_applied: Option<LogId>,
    /// The last membership applied.
    pub(crate) membership: StoredMembership,
    /// From this log index on the table is whole.
    pub(crate) built_at: u64,
    snapshot: Option<StoredSnapshot>,
    snapshot_built_at: u64,
    snapshots_built: u64,
    snapshots_installed: u64,
    /// The membership as of the current snapshot, and those applied since.
    memberships: VecDeque<StoredMembership>,
}

impl StateMachine {
    /// Loads the newest snapshot of the directory `dir`, which is made if missing. Blocks.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] if a snapshot is, or if none reaches what the log has purged.
    pub(crate) fn open(dir: &Path, log: LogStore, cluster: ClusterCell) -> Result<Self, OpenError> {
        let files = SnapshotFiles::open(dir, cluster)?;
        let snapshot = files.load(log.purged())?;
        let label = snapshot.as_ref().and_then(|snapshot| snapshot.meta.last_log_id);
        if log.is_blank() && label.is_some_and(|label| label.index() > 0) {
            let why = "there is a snapshot of a log, and the log beside it is empty: it was removed or lost";
            return Err(OpenError::Damaged { file: dir.to_owned(), why: why.to_owned() });
        }
        let mut machine = Machine::default();
        if let Some(snapshot) = snapshot {
            let contents = Contents::decode(&snapshot.data).map_err(|why| why.refuse(dir.to_owned()))?;
            machine.replace(&contents, snapshot);
        }
        Ok(Self { machine: Arc::new(Mutex::new(machine)), log, files: Arc::new(files), fault: Arc::default() })
    }

    /// The state, which does not move while the guard lives. Not to be held over an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `read` makes of the state.
    pub(crate) fn with<R>(&self, read: impl FnOnce(&Machine) -> R) -> R {
        read(&self.lock())
    }

    pub(super) fn label(&self, machine: &Machine, index: u64) -> Option<LogId> {
        let known = [machine.last_applied, machine.snapshot_label()];
        let known = known.into_iter().flatten().find(|log_id| log_id.index() == index);
        known.or_else(|| {
            let found = self.log.log_id_at(index);
            found.inspect_err(|error| tracing::error!(%error, index, "the log cannot be read")).ok().flatten()
        })
    }

    async fn persist(&self, meta: &SnapshotMeta, data: SnapshotData) -> io::Result<StoredSnapshot> {
        let (files, meta) = (Arc::clone(&self.files), meta.clone());
        let persisted = tokio::task::spawn_blocking(move || files.persist(&meta, &data)).await;
        persisted.map_err(io::Error::other)?.inspect_err(|error| {
            self.fault.get_or_init(|| format!("a snapshot could not be written: {error}"));
        })
    }

    /// Why a snapshot could not be written; openraft has stopped then, and so must the process.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }
}

impl Machine {
    /// The table is the state of a moment: reads, key checks, backups and promotion may rest on it.
    pub(crate) fn is_complete(&self) -> bool {
        self.applied_index() >= self.built_at
    }

    /// The index of the last entry applied; 0 before the first.
    pub(crate) fn applied_index(&self) -> u64 {
        self.last_applied.map_or(0, |log_id| log_id.index())
    }

    /// The label that a snapshot taken now would have; `None` before the first entry.
    pub(crate) fn label(&self) -> Option<u64> {
        self.last_applied.map(|last_applied| self.table.label(last_applied.index()))
    }

    /// Snapshots built and installed since this process opened the directory.
    pub(crate) fn snapshots_made(&self) -> (u64, u64) {
        (self.snapshots_built, self.snapshots_installed)
    }

    /// The newest snapshot on disk.
    pub(crate) fn snapshot_view(&self) -> Option<SnapshotView> {
        let snapshot = self.snapshot.as_ref()?;
        let index = self.snapshot_label()?.index();
        Some(SnapshotView { index, built_at: self.snapshot_built_at, bytes: snapshot.file_bytes })
    }

    fn snapshot_label(&self) -> Option<LogId> {
        self.snapshot.as_ref().and_then(|snapshot| snapshot.meta.last_log_id)
    }

    pub(super) fn apply(&mut self, entry: Entry) -> io::Result<EntryApplied> {
        let applied = match entry.payload {
            EntryPayload::Blank => Applied::Done,
            EntryPayload::Normal(batch) => self.apply_batch(entry.log_id, &batch)?,
            EntryPayload::Membership(membership) => {
                self.retire_those_missing(&membership);
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                self.memberships.push_back(self.membership.clone());
                Applied::Done
            }
        };
        self.last_applied = Some(entry.log_id);
        Ok(EntryApplied(applied))
    }

    /// A node that is a member no more never becomes one again.
    fn retire_those_missing(&mut self, next: &Membership) {
        for (id, _) in self.membership.membership().nodes().filter(|(id, _)| next.get_node(id).is_none()) {
            self.table.retire(*id);
        }
    }

    fn apply_batch(&mut self, log_id: LogId, bytes: &BatchBytes) -> io::Result<Applied> {
        let batch = Batch::decode(&bytes.0).map_err(|error| {
            let why = format!("log entry {log_id} cannot be applied: {error}");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        Ok(self.table.apply(log_id.index(), log_id.committed_leader_id().term, batch))
    }

    /// Puts what a snapshot says in the place of everything.
    fn replace(&mut self, contents: &Contents, snapshot: StoredSnapshot) {
        self.table = Table::from_residue(&contents.residue);
        self.last_applied = snapshot.meta.last_log_id;
        self.membership = snapshot.meta.last_membership.clone();
        self.built_at = contents.built_at;
        self.adopt(contents.built_at, snapshot);
    }

    /// Makes a snapshot the current one; the state stays.
    fn adopt(&mut self, built_at: u64, snapshot: StoredSnapshot) {
        let label = snapshot.meta.last_log_id;
        self.memberships.retain(|membership| *membership.log_id() > label);
        self.memberships.push_front(snapshot.meta.last_membership.clone());
        self.snapshot_built_at = built_at;
        self.snapshot = Some(snapshot);
    }

    fn membership_at(&self, label: LogId) -> StoredMembership {
        let upto = |membership: &&StoredMembership| *membership.log_id() <= Some(label);
        self.memberships.iter().rev().find(upto).cloned().unwrap_or_default()
    }

    fn contents(&self) -> Contents {
        let residue: Residue = self.table.residue();
        Contents { built_at: self.applied_index().max(self.built_at), residue }
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok(self.with(|machine| (machine.last_applied, machine.membership.clone())))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((mut entry, responder)) = entries.try_next().await? {
            // Only the node that proposed an entry has somebody to answer; the faults are those of the others.
            let foreign = responder.is_none();
            if foreign && planted(Plant::OfficeOpensEarly) {
                tokio::time::sleep(plant::until_applying(tokio::time::Instant::now())).await;
            }
            if foreign && planted(Plant::RequestIdForgotten) {
                entry = plant::without_request_ids(entry);
            }
            let applied = self.lock().apply(entry)?;
            if foreign && planted(Plant::FollowerExpires) {
                plant::end_by_own_clock(&mut self.lock().table, tokio::time::Instant::now());
            }
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        Ok(())
    }

    /// `force` comes only when a purged log has no snapshot.
    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<SnapshotBuilder> {
        let machine = self.lock();
        let Some(last_applied) = machine.last_applied else {
            // Opening refuses a purged log without a snapshot; only openraft's own test suite comes here with `force`.
            let (meta, contents) = (SnapshotMeta::default(), machine.contents());
            return force.then(|| SnapshotBuilder { machine: self.clone(), meta, contents });
        };
        let index = machine.table.label(last_applied.index());
        if !force && machine.snapshot_label().is_some_and(|label| label.index() >= index) {
            return None;
        }
        let label = self.label(&machine, index)?;
        let meta = SnapshotMeta { last_log_id: Some(label), last_membership: machine.membership_at(label) };
        Some(SnapshotBuilder { machine: self.clone(), meta, contents: machine.contents() })
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        unreachable!("openraft calls it only from the default of try_create_snapshot_builder")
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> Result<(), io::Error> {
        let contents = Contents::decode(&data).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        let snapshot = self.persist(meta, data).await?;
        let mut machine = self.lock();
        machine.replace(&contents, snapshot);
        machine.snapshots_installed += 1;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        Ok(self.lock().snapshot.as_ref().map(snapshot_of))
    }
}

/// A snapshot captured and not yet written.
pub(crate) struct SnapshotBuilder {
    machine: StateMachine,
    meta: SnapshotMeta,
    contents: Contents,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let snapshot = self.machine.persist(&self.meta, self.contents.encode()).await?;
        let mut machine = self.machine.lock();
        match &machine.snapshot {
            // One that was installed meanwhile reaches further.
            Some(current) if current.meta.last_log_id > self.meta.last_log_id => Ok(snapshot_of(current)),
            _ => {
                let built = snapshot_of(&snapshot);
                machine.adopt(self.contents.built_at, snapshot);
                machine.snapshots_built += 1;
                Ok(built)
            }
        }
    }
}

fn snapshot_of(snapshot: &StoredSnapshot) -> Snapshot {
    Snapshot { meta: snapshot.meta.clone(), snapshot: snapshot.data.clone() }
}
