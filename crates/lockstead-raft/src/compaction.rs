//! Keeps the log short on every node: takes a snapshot when one pays, and purges the log behind it.
//!
//! Invariants:
//! 1. A snapshot is asked for only if its label would rise.
//! 2. The log is never purged past the newest snapshot's label: that one is checked by openraft once more.
//! 3. Nothing here waits for a disk but the walk over the data directory, which has a thread of its own.
//!
//! What makes labels rise is the leader's office: it restates old records once the tail is too long (`office`).

use std::path::PathBuf;
use std::time::Duration;

use lockstead_core::NodeId;
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;
use openraft::error::Fatal;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::metrics::ReplicaMetrics;
use crate::store::{LogStore, Machine, StateMachine, disk_bytes};
use crate::types::{LogId, Raft, RaftMetrics, TypeConfig};

/// How often a node looks whether a snapshot pays.
const ROUND: Duration = Duration::from_millis(100);
/// How often it looks whether one that was asked for is there, so that the log behind it goes soon.
const WHILE_BUILDING: Duration = Duration::from_millis(10);
/// How often it looks what its data directory occupies.
const DISK_EVERY: Duration = Duration::from_secs(5);
/// The most entries that are kept before a label, so that a node that was away for a moment needs no snapshot.
const KEPT_ENTRIES_MAX: u64 = 1_000;

/// When a snapshot pays: at the first of these since the last one, if its label would rise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionLimits {
    /// So many entries could be purged.
    pub(crate) entries: u64,
    /// So many bytes of entries could be purged; also the most that is kept for followers that lag.
    pub(crate) bytes: u64,
    /// Anything could be purged, and so long has passed.
    pub(crate) age: Duration,
}

/// What a node's compaction stands on.
pub(crate) struct Compaction {
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
    pub(crate) limits: CompactionLimits,
    /// A follower that answered so lately is within reach.
    pub(crate) reach: Duration,
    pub(crate) data_dir: PathBuf,
    pub(crate) metrics: ReplicaMetrics,
}

/// What the next snapshot would be, and the last one is.
#[derive(Clone, Copy, Debug)]
struct Labels {
    /// The label that a snapshot taken now would have.
    next: Option<u64>,
    /// The label of the newest one.
    newest: Option<u64>,
}

impl Compaction {
    /// Runs until `stopping`, or until openraft has stopped.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        tokio::select! {
            () = stopping.cancelled() => {}
            ended = self.rounds() => tracing::debug!(?ended, "compaction ended with openraft"),
            () = self.watch_disk() => {}
        }
    }

    async fn rounds(&self) -> Result<(), Fatal<TypeConfig>> {
        let (mut last_made, mut counted) = (Instant::now(), (0, 0));
        loop {
            let made = self.machine.with(Machine::snapshots_made);
            if made != counted {
                last_made = Instant::now();
                self.metrics.compaction.count(counted, made);
                counted = made;
            }
            self.show_figures(last_made);
            let labels = self.labels();
            let pays = self.pays(labels, last_made.elapsed());
            if pays {
                self.raft.trigger().snapshot().await?;
            }
            self.purge(labels.newest).await?;
            sleep(if pays { WHILE_BUILDING } else { ROUND }).await;
        }
    }

    fn labels(&self) -> Labels {
        let (next, newest) = self.machine.with(|state| (state.label(), state.snapshot_view()));
        Labels { next, newest: newest.map(|snapshot| snapshot.index) }
    }

    fn pays(&self, labels: Labels, age: Duration) -> bool {
        let Some(next) = labels.next.filter(|next| labels.newest.is_none_or(|newest| *next > newest)) else {
            return false;
        };
        let entries = next - labels.newest.unwrap_or(0);
        let bytes_behind_newest = labels.newest.map_or_else(|| self.log.tail_stats().1, |at| self.log.bytes_after(at));
        let bytes = bytes_behind_newest.saturating_sub(self.log.bytes_after(next));
        entries >= self.limits.entries || bytes >= self.limits.bytes || age >= self.limits.age
    }

    async fn purge(&self, newest: Option<u64>) -> Result<(), Fatal<TypeConfig>> {
        let Some(newest) = newest else { return Ok(()) };
        let kept = newest.saturating_sub(self.limits.entries.min(KEPT_ENTRIES_MAX));
        let upto = purge_end(&self.log, &self.raft, newest, kept, self.limits.bytes, self.reach);
        if self.log.purged().is_none_or(|purged| purged.index() < upto) && upto > 0 {
            self.raft.trigger().purge_log(upto).await?;
        }
        Ok(())
    }

    fn show_figures(&self, last_made: Instant) {
        let (entries, bytes) = self.log.tail_stats();
        let (live, snapshot) = self.machine.with(|state| (state.table.live_records(), state.snapshot_view()));
        let figures = &self.metrics.compaction;
        figures.tail_entries.set(gauge(entries));
        figures.tail_bytes.set(gauge(bytes));
        figures.live_records.set(i64::try_from(live).unwrap_or(i64::MAX));
        figures.purged_index.set(self.log.purged().map_or(0, |purged| gauge(purged.index())));
        figures.snapshot_age_seconds.set(last_made.elapsed().as_secs_f64());
        if let Some(snapshot) = snapshot {
            figures.snapshot_index.set(gauge(snapshot.index));
            figures.snapshot_built_at.set(gauge(snapshot.built_at));
            figures.snapshot_bytes.set(gauge(snapshot.bytes));
        }
    }

    async fn watch_disk(&self) {
        loop {
            let data_dir = self.data_dir.clone();
            match tokio::task::spawn_blocking(move || disk_bytes(&data_dir)).await {
                Ok(Ok(bytes)) => {
                    self.metrics.compaction.disk_bytes.set(gauge(bytes));
                }
                Ok(Err(error)) => tracing::warn!(%error, "the data directory cannot be measured"),
                Err(error) => tracing::warn!(%error, "the data directory was not measured"),
            }
            sleep(DISK_EVERY).await;
        }
    }
}

/// How far the log goes behind a snapshot labelled `label`: up to `wanted`, but on a leader not past what followers
/// within reach still need, as long as that is not more than `bytes_max`. What a follower lacks beyond it is sent to it
/// as the snapshot and the tail.
pub(crate) fn purge_end(log: &LogStore, raft: &Raft, label: u64, wanted: u64, bytes_max: u64, reach: Duration) -> u64 {
    let needed = needed_from(&raft.metrics().borrow_watched(), *raft.node_id(), reach);
    let floor = log.index_before_last(log.bytes_after(label).saturating_add(bytes_max)).unwrap_or(0);
    end_of(label, wanted, needed, floor)
}

/// Not past the label, not below the floor, and between the two not past what is needed.
fn end_of(label: u64, wanted: u64, needed: Option<u64>, floor: u64) -> u64 {
    wanted.min(needed.unwrap_or(wanted)).max(floor).min(label)
}

/// The last entry that every follower within reach of this leader has.
fn needed_from(metrics: &RaftMetrics, me: NodeId, reach: Duration) -> Option<u64> {
    let (replication, heard) = (metrics.replication.as_ref()?, metrics.heartbeat.as_ref()?);
    let within_reach = |id: &NodeId| heard.get(id).and_then(Option::as_ref).is_some_and(|at| at.elapsed() <= reach);
    let followers = replication.iter().filter(|(id, _)| **id != me && within_reach(id));
    followers.map(|(_, matched)| matched.as_ref().map_or(0, LogId::index)).min()
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use openraft::metrics::SerdeInstant;
    use openraft::type_config::TypeConfigExt as _;

    use super::*;

    #[test]
    fn the_log_goes_to_the_label_but_not_past_what_is_needed_unless_that_is_too_much() {
        assert_eq!(end_of(100, 60, None, 0), 60, "some entries are kept for those who were away for a moment");
        assert_eq!(end_of(100, 100, None, 0), 100);
        assert_eq!(end_of(100, 100, Some(200), 0), 100, "never past the label");
        assert_eq!(end_of(100, 100, Some(40), 0), 40);
        assert_eq!(end_of(100, 100, Some(40), 70), 70, "a follower so far behind gets the snapshot");
        assert_eq!(end_of(100, 60, Some(200), 300), 100);
    }

    #[test]
    fn a_leader_needs_what_followers_within_reach_lack() {
        let reach = Duration::from_secs(30);
        let mut metrics = RaftMetrics::new_initial(1);
        assert_eq!(needed_from(&metrics, 1, reach), None, "no leader");
        let matched = |index: u64| Some(LogId::new_term_index(1, index));
        let now = TypeConfig::now();
        let heard = |age_secs: u64| Some(SerdeInstant::new(now - Duration::from_secs(age_secs)));
        metrics.replication = Some(BTreeMap::from([(1, matched(5)), (2, matched(70)), (3, matched(20)), (4, None)]));
        metrics.heartbeat = Some(BTreeMap::from([(1, heard(0)), (2, heard(0)), (3, heard(1)), (4, heard(31))]));
        assert_eq!(needed_from(&metrics, 1, reach), Some(20), "node 4 is out of reach, node 1 is the leader");
        metrics.heartbeat = Some(BTreeMap::from([(2, heard(0)), (3, None), (4, None)]));
        assert_eq!(needed_from(&metrics, 1, reach), Some(70));
        metrics.heartbeat = Some(BTreeMap::from([(2, heard(0)), (4, heard(0))]));
        assert_eq!(needed_from(&metrics, 1, reach), Some(0), "a new learner needs it all");
    }
}
