//! A snapshot that an operator asks for: the leader restates every live record, then the node asked builds and purges.
//!
//! Each step may be repeated. A call that ran out of time leaves the leader restating; the next call joins that.

use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::compaction::purge_end;
use crate::node::Node;
use crate::peer::{RestateAnswer, Restated, ask_to_restate};
use crate::platform::Platform;
use crate::router::Router;
use crate::store::{Machine, StateMachine};
use crate::ticket::Note;

/// How long to wait before a leader is looked for, or something is looked at, once more.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How long a purge may take to happen; replication that is under way may hold it up.
const PURGE_TIME_MAX: Duration = Duration::from_secs(2);

/// What a snapshot on request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// Log index of its label.
    pub index: u64,
    /// The index below which a table built from it is the state of no moment.
    pub built_at: u64,
    /// Last log index purged; 0 if nothing ever was.
    pub purged_to: u64,
    /// Its size.
    pub bytes: u64,
}

/// Why a snapshot on request was not taken. Asking again is harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// No leader with a quorum was found in time.
    #[error("no leader with a quorum was found in time; no snapshot was taken")]
    NoLeader,
    /// This node has not replayed enough of the log. Ask another, or later.
    #[error("this node is still catching up with the log")]
    CatchingUp,
    /// It takes longer than the request may; what was begun goes on.
    #[error("the snapshot is not done yet; ask again to wait for it")]
    NotInTime,
}

impl<P: Platform> Node<P> {
    /// See [`crate::Replica::snapshot`].
    pub(crate) async fn snapshot(&self, time_max: Duration) -> Result<SnapshotTaken, SnapshotError> {
        let ends = Instant::now() + time_max;
        if !self.machine.with(Machine::is_complete) {
            return Err(SnapshotError::CatchingUp);
        }
        let Restated { upto, applied } = self.restated(ends).await?;
        let label = timeout_at(ends, self.built(upto, applied)).await.map_err(|_| SnapshotError::NotInTime)??;
        self.purge_to(label, ends).await;
        let snapshot = self.machine.with(Machine::snapshot_view).ok_or(SnapshotError::NotInTime)?;
        Ok(SnapshotTaken {
            index: snapshot.index,
            built_at: snapshot.built_at,
            purged_to: self.log.purged().map_or(0, |purged| purged.index()),
            bytes: snapshot.bytes,
        })
    }

    /// Has the leader restate, wherever it is.
    async fn restated(&self, ends: Instant) -> Result<Restated, SnapshotError> {
        let mut begun = false;
        while Instant::now() < ends {
            match timeout_at(ends, self.restated_by_leader(ends)).await {
                Ok(Some(RestateAnswer::Restated(restated))) => return Ok(restated),
                Ok(Some(RestateAnswer::NotInTime)) | Err(_) => begun = true,
                Ok(Some(RestateAnswer::NotLeader) | None) => sleep(AGAIN_AFTER).await,
            }
        }
        Err(if begun { SnapshotError::NotInTime } else { SnapshotError::NoLeader })
    }

    async fn restated_by_leader(&self, ends: Instant) -> Option<RestateAnswer> {
        let leader = self.leader()?.node_id;
        if leader == self.identity.node_id() {
            return self.router.restate_here(&self.machine).await.map(RestateAnswer::Restated);
        }
        let member = crate::node::member(&self.raft, leader)?;
        let time_left = ends.saturating_duration_since(Instant::now());
        let asked = ask_to_restate(&self.dialer, leader, &member, time_left).await;
        asked.inspect_err(|why| tracing::debug!(leader, %why, "the leader was not asked to restate")).ok()
    }

    /// Waits until `applied` is, and takes a snapshot whose label is `upto` or above; gives that label.
    async fn built(&self, upto: u64, applied: u64) -> Result<u64, SnapshotError> {
        loop {
            let (reached, newest) = self.machine.with(|state| (state.applied_index(), state.snapshot_view()));
            if let Some(snapshot) = newest.filter(|snapshot| snapshot.index >= upto) {
                return Ok(snapshot.index);
            }
            if reached >= applied {
                // One that is being built already may be of an earlier moment: then the next look asks again.
                self.raft.trigger().snapshot().await.map_err(|_| SnapshotError::NotInTime)?;
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    async fn purge_to(&self, label: u64, ends: Instant) {
        let reach = self.config.election_max();
        let upto = purge_end(&self.log, &self.raft, label, label, self.config.snapshot_bytes, reach);
        let purged = async {
            while self.log.purged().is_none_or(|purged| purged.index() < upto) {
                if self.raft.trigger().purge_log(upto).await.is_err() {
                    return;
                }
                sleep(AGAIN_AFTER).await;
            }
        };
        // What is not purged by then is purged by the compaction's own rounds.
        let _ = timeout_at(ends.min(Instant::now() + PURGE_TIME_MAX), purged).await;
    }
}

impl<P: Platform> Router<P> {
    /// Restates every live record, if this node leads; `None` if it does not, or no longer.
    pub(crate) async fn restate_here(&self, machine: &StateMachine) -> Option<Restated> {
        let door = self.own_office().await?;
        let upto = machine.with(|state| self.restating.ask(state));
        // No receiver: the office has just ended, and the next one looks at its first step.
        let _ = door.notes.send(Note::Restate);
        let mut metrics = self.raft.metrics();
        loop {
            let (oldest, applied) = machine.with(|state| (state.table.oldest_statement(), state.applied_index()));
            if oldest.is_none_or(|oldest| oldest > upto) {
                return Some(Restated { upto, applied });
            }
            if self.office.borrow().as_ref().is_none_or(|open| open.term != door.term) {
                return None;
            }
            if let Ok(Err(_)) = timeout(AGAIN_AFTER, metrics.changed()).await {
                return None;
            }
        }
    }
}
