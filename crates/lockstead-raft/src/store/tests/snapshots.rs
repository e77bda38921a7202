//! Snapshots hold the residue only; with the log behind them they give the same table again.

use std::path::{Path, PathBuf};

use lockstead_core::{
    Batch, ClusterId, DropReason, Fence, Hold, Incarnation, LeaseTime, LockKey, LockName, Metadata, Mode, OwnerName,
    Record, Residue, Token, Ttl, WallTime,
};
use openraft::EntryPayload;
use openraft::storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine, StorageHelper};

use super::{append, batch, blank, blanks, log_id, open};
use crate::OpenError;
use crate::identity::ClusterCell;
use crate::store::{LogStore, Machine, StateMachine, first_snapshot, write_first_snapshot};
use crate::types::{Entry, LogId, Member, Snapshot, StoredMembership, Vote};

const TOKEN: [u8; 16] = *b"secret-token-16b";

struct Node {
    dir: tempfile::TempDir,
    log: LogStore,
    machine: StateMachine,
}

impl Node {
    fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap())
    }

    fn open(dir: tempfile::TempDir) -> Self {
        let log = open(&dir.path().join("log"));
        let machine = open_machine(dir.path(), &log, ClusterCell::default()).unwrap();
        Self { dir, log, machine }
    }

    async fn with_two_snapshots() -> Self {
        let mut node = Self::new();
        for index in 0..2 {
            node.commit(vec![blank(1, index)]).await;
            node.snapshot().await.unwrap();
        }
        node
    }

    fn restart(self) -> Self {
        let Self { dir, log, machine } = self;
        drop((log, machine));
        Self::open(dir)
    }

    async fn commit(&mut self, entries: Vec<Entry>) {
        append(&mut self.log, entries.clone()).await;
        self.log.save_committed(entries.last().map(|entry| entry.log_id)).await.unwrap();
        self.apply(entries).await;
    }

    async fn apply(&mut self, entries: Vec<Entry>) {
        let entries = futures::stream::iter(entries.into_iter().map(|entry| Ok((entry, None))));
        self.machine.apply(entries).await.unwrap();
    }

    async fn snapshot(&mut self) -> Option<Snapshot> {
        let mut builder = self.machine.try_create_snapshot_builder(false).await?;
        Some(builder.build_snapshot().await.unwrap())
    }

    /// What openraft does with a store before it runs.
    async fn recover(&mut self) {
        StorageHelper::new(&mut self.log, &mut self.machine).with_id(1).get_initial_state().await.unwrap();
    }

    /// The whole state, as far as it shows.
    fn state(&self) -> (String, Option<LogId>, StoredMembership) {
        self.machine.with(|m| (format!("{:?}", m.table.residue()) + &holds(m), m.last_applied, m.membership.clone()))
    }

    fn files(&self) -> Vec<String> {
        let items = std::fs::read_dir(self.dir.path().join("snapshots")).unwrap();
        let mut names: Vec<_> = items.map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn newest_file(&self) -> PathBuf {
        self.dir.path().join("snapshots").join(self.files().last().unwrap())
    }
}

fn holds(machine: &Machine) -> String {
    let holds = ["a", "b"].map(|name| format!("{:?}", machine.table.holds(&lock(name))));
    format!("{holds:?} {}", machine.table.live_records())
}

fn open_machine(dir: &Path, log: &LogStore, cluster: ClusterCell) -> Result<StateMachine, OpenError> {
    StateMachine::open(&dir.join("snapshots"), log.clone(), cluster)
}

fn lock(name: &str) -> LockKey {
    LockKey::in_default(&LockName::parse(name).unwrap())
}

fn hold(name: &str, fence: u64) -> Record {
    Record::Hold(Hold {
        lock: lock(name),
        fence: Fence(fence),
        token: Token(TOKEN),
        owner: Some(OwnerName::parse("the-owner-of-it").unwrap()),
        request_id: None,
        mode: Mode::Exclusive,
        permits: 1,
        session: None,
        ttl: Ttl::DEFAULT,
        deadline: LeaseTime(40_000),
        delay_ms: 0,
        acquired_at: WallTime(0),
        metadata: Metadata::default(),
    })
}

fn drop_of(name: &str, fence: u64) -> Record {
    Record::Drop { lock: lock(name), fence: Fence(fence), reason: DropReason::Released }
}

fn facts(term: u64, index: u64, records: Vec<Record>) -> Entry {
    batch(term, index, &Batch { term, time: LeaseTime(index * 100), records }.encode())
}

fn membership(term: u64, index: u64, voters: &[u64]) -> Entry {
    openraft::testing::membership_ent::<crate::types::TypeConfig>(
        term,
        0,
        index,
        vec![voters.iter().copied().collect()],
    )
}

#[tokio::test]
async fn a_snapshot_is_labelled_before_the_oldest_live_record_and_holds_none() {
    let mut node = Node::new();
    node.commit(vec![membership(1, 0, &[1]), facts(1, 1, vec![hold("a-long-lock-name", 1)]), blank(1, 2)]).await;
    node.commit(vec![facts(1, 3, vec![hold("a", 2)]), membership(1, 4, &[1, 2])]).await;
    node.commit(vec![facts(1, 5, vec![drop_of("a-long-lock-name", 1)]), blank(2, 6)]).await;
    let snapshot = node.snapshot().await.unwrap();

    assert_eq!(snapshot.meta.last_log_id, Some(log_id(1, 2)));
    assert_eq!(*snapshot.meta.last_membership.log_id(), Some(log_id(1, 0)));
    let view = node.machine.with(Machine::snapshot_view).unwrap();
    assert_eq!((view.index, view.built_at), (2, 6));
    let file = std::fs::read(node.newest_file()).unwrap();
    assert_eq!(view.bytes, file.len() as u64);
    for secret in [&TOKEN[..], b"the-owner", b"a-long-lock"] {
        assert!(!file.windows(secret.len()).any(|bytes| bytes == secret));
    }
}

#[tokio::test]
async fn a_snapshot_that_would_not_reach_further_is_declined() {
    let mut node = Node::new();
    assert!(node.snapshot().await.is_none());
    node.commit(vec![membership(1, 0, &[1]), facts(1, 1, vec![hold("a", 1)])]).await;
    assert_eq!(node.snapshot().await.unwrap().meta.last_log_id, Some(log_id(1, 0)));
    node.commit(vec![blank(1, 2)]).await;
    assert!(node.snapshot().await.is_none());
    node.commit(vec![facts(1, 3, vec![hold("a", 1)])]).await;
    assert_eq!(node.snapshot().await.unwrap().meta.last_log_id, Some(log_id(1, 2)));
}

#[tokio::test]
async fn snapshot_and_log_give_the_same_table_after_a_restart() {
    let mut node = Node::new();
    node.commit(vec![membership(1, 0, &[1]), facts(1, 1, vec![hold("b", 1)]), membership(1, 2, &[1, 2])]).await;
    node.commit(vec![facts(1, 3, vec![hold("a", 2)]), facts(1, 4, vec![drop_of("b", 1)]), facts(1, 5, vec![])]).await;
    let label = node.snapshot().await.unwrap().meta.last_log_id.unwrap();
    assert_eq!(label, log_id(1, 2));
    node.log.purge(label).await.unwrap();
    let EntryPayload::Normal(of_another_term) = facts(1, 7, vec![hold("b", 9)]).payload else { unreachable!() };
    let void = batch(2, 7, &of_another_term.0);
    node.commit(vec![facts(2, 6, vec![hold("b", 3)]), void, blank(2, 8)]).await;
    let before = node.state();

    let mut node = node.restart();
    assert!(node.machine.with(|machine| !machine.is_complete() && machine.last_applied == Some(label)));
    node.recover().await;
    assert_eq!(node.state(), before);
    assert!(node.machine.with(Machine::is_complete));
    assert!(before.0.contains("Fence(3)") && !before.0.contains("Fence(9)"), "{}", before.0);
}

#[tokio::test]
async fn an_installed_snapshot_replaces_everything_and_is_there_after_a_restart() {
    let mut leader = Node::new();
    leader.commit(vec![membership(1, 0, &[1, 2]), facts(1, 1, vec![hold("a", 7)])]).await;
    leader.commit(vec![facts(1, 2, vec![drop_of("a", 7)]), facts(1, 3, vec![])]).await;
    let snapshot = leader.snapshot().await.unwrap();

    let mut follower = Node::new();
    follower.log.save_vote(&Vote::new(1, 1)).await.unwrap();
    follower.apply(vec![membership(1, 0, &[1, 2]), facts(1, 1, vec![hold("b", 1)])]).await;
    follower.machine.install_snapshot(&snapshot.meta, snapshot.snapshot.clone()).await.unwrap();
    assert_eq!(follower.state(), leader.state());
    let mut follower = follower.restart();
    assert_eq!(follower.state(), leader.state());
    let current = follower.machine.get_current_snapshot().await.unwrap().unwrap();
    assert_eq!((current.meta, current.snapshot), (snapshot.meta, snapshot.snapshot));
}

#[tokio::test]
async fn a_snapshot_beside_an_empty_log_is_damage() {
    let mut node = Node::new();
    node.commit(vec![membership(1, 0, &[1]), blank(1, 1)]).await;
    node.snapshot().await.unwrap();
    let Node { dir, log, machine } = node;
    drop((log, machine));
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    let log = open(&dir.path().join("log"));
    let why = open_machine(dir.path(), &log, ClusterCell::default()).err().unwrap();
    assert!(matches!(why, OpenError::Damaged { .. }), "{why}");
}

#[tokio::test]
async fn the_membership_of_a_label_is_known_however_many_snapshots_were_taken_before() {
    let mut node = Node::new();
    node.commit(vec![membership(1, 0, &[1]), blank(1, 1)]).await;
    assert_eq!(*node.snapshot().await.unwrap().meta.last_membership.log_id(), Some(log_id(1, 0)));
    node.commit(vec![blank(1, 2), facts(1, 3, vec![hold("a", 1)]), membership(1, 4, &[1, 2])]).await;
    assert_eq!(*node.snapshot().await.unwrap().meta.last_membership.log_id(), Some(log_id(1, 0)));
    node.commit(vec![facts(1, 5, vec![drop_of("a", 1)])]).await;
    assert_eq!(*node.snapshot().await.unwrap().meta.last_membership.log_id(), Some(log_id(1, 4)));
}

#[tokio::test]
async fn the_label_is_found_in_the_log_even_after_a_purge_to_it() {
    let mut node = Node::new();
    node.commit(blanks(1, 0..30_000)).await;
    node.commit(vec![facts(2, 30_000, vec![hold("a", 1)])]).await;
    node.commit(blanks(2, 30_001..60_000)).await;
    assert_eq!(node.snapshot().await.unwrap().meta.last_log_id, Some(log_id(1, 29_999)));
}

#[tokio::test]
async fn only_the_newest_two_snapshots_are_kept() {
    let mut node = Node::new();
    for index in 0..4 {
        node.commit(vec![blank(1, index)]).await;
        node.snapshot().await.unwrap();
    }
    let name = |index: u64| format!("{index:020}-{:020}.snap", 1);
    assert_eq!(node.files(), [name(2), name(3)]);
    std::fs::write(node.dir.path().join("snapshots/x.tmp"), "half").unwrap();
    let node = node.restart();
    assert_eq!(node.files(), [name(2), name(3)]);
    assert_eq!(node.machine.with(Machine::snapshot_view).unwrap().index, 3);
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused_by_name() {
    let mut node = Node::new();
    node.commit(vec![membership(1, 0, &[1]), blank(1, 1)]).await;
    node.snapshot().await.unwrap();
    let path = node.newest_file();
    let bytes = std::fs::read(&path).unwrap();
    let check = |damaged: &[u8]| {
        std::fs::write(&path, damaged).unwrap();
        let refused = open_machine(node.dir.path(), &node.log, ClusterCell::default()).err().unwrap();
        assert!(matches!(&refused, OpenError::Damaged { file, .. } if *file == path), "{refused}");
    };
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        check(&damaged);
    }
    check(&bytes[..bytes.len() - 1]);
    check(&[]);
    std::fs::write(&path, &bytes).unwrap();
    open_machine(node.dir.path(), &node.log, ClusterCell::default()).unwrap();
}

#[tokio::test]
async fn an_older_snapshot_does_for_a_damaged_one_as_long_as_the_log_behind_it_is_there() {
    let mut node = Node::new();
    node.commit(vec![membership(1, 0, &[1]), facts(1, 1, vec![hold("a", 1)]), blank(1, 2)]).await;
    node.snapshot().await.unwrap();
    node.commit(vec![facts(1, 3, vec![hold("a", 1)]), facts(1, 4, vec![hold("b", 2)])]).await;
    node.snapshot().await.unwrap();
    let (before, newest) = (node.state(), node.newest_file());
    let intact = std::fs::read(&newest).unwrap();
    let damage = || std::fs::write(&newest, &intact[..intact.len() - 1]).unwrap();

    damage();
    let mut node = node.restart();
    node.recover().await;
    assert_eq!(node.state(), before);
    assert_eq!(node.machine.with(Machine::snapshot_view).unwrap().index, 0);
    assert!(newest.with_extension("damaged").exists() && !newest.exists(), "{:?}", node.files());

    damage();
    node.log.purge(log_id(1, 1)).await.unwrap();
    let refused = open_machine(node.dir.path(), &node.log, ClusterCell::default()).err().unwrap();
    assert!(matches!(&refused, OpenError::Damaged { file, .. } if *file == newest), "{refused}");
    assert!(newest.exists(), "what is refused stays as it is");
    std::fs::write(&newest, &intact).unwrap();
    open_machine(node.dir.path(), &node.log, ClusterCell::default()).unwrap();
}

#[tokio::test]
async fn a_snapshot_of_a_newer_version_is_refused_though_an_older_one_is_there() {
    let node = Node::with_two_snapshots().await;
    let path = node.newest_file();
    let mut same_layout = std::fs::read(&path).unwrap();
    same_layout[7] = 2;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&same_layout[..24]);
    crc.update(&same_layout[28..]);
    same_layout[24..28].copy_from_slice(&crc.finalize().to_le_bytes());
    for newer in [&same_layout[..], &[b"LOCKSNP\x02", &[7; 40][..]].concat(), b"LOCKSNP\x02\x09"] {
        std::fs::write(&path, newer).unwrap();
        let refused = open_machine(node.dir.path(), &node.log, ClusterCell::default()).err().unwrap();
        assert!(matches!(&refused, OpenError::Newer { file, .. } if *file == path), "{refused}");
        let said = refused.to_string();
        assert!(said.contains("of version 2, and this build knows version 1"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), newer, "what is refused stays as it is");
    }
}

/// Not a newer version: an older snapshot does.
#[tokio::test]
async fn a_snapshot_whose_beginning_or_version_alone_is_damaged_is_damage() {
    let version = |bytes: &mut Vec<u8>| bytes[7] ^= 0x40;
    let beginning = |bytes: &mut Vec<u8>| bytes[..12].fill(0xe5);
    let all = |bytes: &mut Vec<u8>| bytes.fill(0xe5);
    for damage in [&version as &dyn Fn(&mut Vec<u8>), &beginning, &all] {
        let node = Node::with_two_snapshots().await;
        let path = node.newest_file();
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        open_machine(node.dir.path(), &node.log, ClusterCell::default()).unwrap();
        assert!(path.with_extension("damaged").exists(), "{:?}", node.files());
    }
}

#[tokio::test]
async fn a_purged_log_without_a_snapshot_that_reaches_it_is_damage() {
    let mut node = Node::new();
    node.commit(vec![membership(1, 0, &[1]), blank(1, 1)]).await;
    node.snapshot().await.unwrap();
    node.commit(vec![blank(1, 2)]).await;
    node.log.purge(log_id(1, 1)).await.unwrap();
    open_machine(node.dir.path(), &node.log, ClusterCell::default()).unwrap();
    node.log.purge(log_id(1, 2)).await.unwrap();
    assert!(matches!(
        open_machine(node.dir.path(), &node.log, ClusterCell::default()),
        Err(OpenError::Damaged { why, .. }) if why.contains("1.2")
    ));
}

#[tokio::test]
async fn a_snapshot_of_another_cluster_is_refused() {
    let mut node = Node::new();
    let cell = ClusterCell::default();
    node.machine = open_machine(node.dir.path(), &node.log, cell.clone()).unwrap();
    node.commit(vec![blank(1, 0)]).await;
    node.snapshot().await.unwrap();
    open_machine(node.dir.path(), &node.log, ClusterCell::new(ClusterId(5).into())).unwrap();
    cell.set(ClusterId(5)).unwrap();
    node.commit(vec![blank(1, 1)]).await;
    node.snapshot().await.unwrap();
    open_machine(node.dir.path(), &node.log, ClusterCell::new(ClusterId(5).into())).unwrap();
    let refused = open_machine(node.dir.path(), &node.log, ClusterCell::new(ClusterId(6).into()));
    assert!(matches!(refused, Err(OpenError::Damaged { .. })));
}

#[tokio::test]
async fn a_batch_that_does_not_decode_stops_the_node() {
    let mut node = Node::new();
    let entry = batch(1, 0, &[255; 40]);
    assert!(matches!(entry.payload, EntryPayload::Normal(_)));
    let result = node.machine.apply(futures::stream::iter([Ok((entry, None))])).await;
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    assert_eq!(node.machine.with(|machine| machine.last_applied), None);
}

#[test]
fn a_snapshot_lies_in_these_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (peer, api, version) = ("p:2".to_owned(), "a:1".to_owned(), "1.2.3".to_owned());
    let member = Member { peer, api, incarnation: Incarnation(9), version, starts: 5, process: 300 };
    let residue = Residue { last_fence: Fence(300), ..Residue::default() };
    write_first_snapshot(dir.path(), ClusterId(0x0102), &first_snapshot(residue, 3, member)).unwrap();
    let before_sum = [b"LOCKSNP", &[1, 2, 1][..], &[0; 14]].concat();
    // Label 0.0; the membership's log id 0.0, one set of one voter, one node; a text that openraft leaves empty.
    let meta = [&[1, 0, 0, 1, 0, 0, 1, 1, 3, 1, 3][..], b"\x03p:2\x03a:1\x09\x051.2.3\x05\xfb\x2c\x01", &[0]];
    // Version, `built_at`, time, last fence, longest TTL and delay, no grant before, retired.
    let data = [1, 0, 0, 251, 44, 1, 0, 0, 0, 0];
    let rest = [&meta.concat()[..], &data].concat();
    let sum = crc32fast::hash(&[&before_sum[..], &rest].concat()).to_le_bytes();
    let file = std::fs::read(dir.path().join("00000000000000000000-00000000000000000000.snap")).unwrap();
    assert_eq!(file, [&before_sum[..], &sum, &rest].concat());
}

#[test]
fn a_snapshot_travels_in_these_bytes() {
    use crate::store::snapshot::Contents;
    let residue = Residue {
        time: LeaseTime(1_000),
        last_fence: Fence(300),
        ttl_max_ms: 30_000,
        delay_max_ms: 7,
        no_grant_before: LeaseTime(5),
        retired: [4].into(),
    };
    let contents = Contents { built_at: 9, residue };
    let golden = [1, 9, 251, 232, 3, 251, 44, 1, 251, 48, 117, 7, 5, 1, 4];
    assert_eq!(contents.encode(), golden);
    assert_eq!(Contents::decode(&golden), Ok(contents));
    assert!(Contents::decode(&[&golden[..], &[0]].concat()).is_err());
    assert!(Contents::decode(&[&[2], &golden[1..]].concat()).is_err());
}
