//! The log stays short, and no held lock is forgotten for it.

use std::collections::BTreeMap;
use std::time::Duration;

use lockstead_core::{Fence, NodeId, Outcome, Token};

use super::cluster::{Cluster, LogLimits, acquire, lock, release, renew, until};
use crate::store::{ENTRY_EXTRA_BYTES, Machine};
use crate::{NotReady, SnapshotError, StopReason, SubmitError};

/// So short that a few hundred entries need restating, snapshots and purges.
const SHORT: LogLimits = LogLimits {
    snapshot_entries: 40,
    snapshot_bytes: 4_096,
    snapshot_age_ms: 600_000,
    tail_bytes_max: 8_192,
    tick_ms: 250,
};
const AN_HOUR_MS: i64 = 3_600_000;

/// Holds by their names.
type Held = BTreeMap<String, (Token, Fence)>;

/// Takes locks for an hour.
async fn hold_long(cluster: &Cluster, through: NodeId, locks: usize) -> Held {
    let mut held = Held::new();
    for number in 0..locks {
        let name = format!("held long {number}");
        let granted = cluster.grant(through, acquire(&name).ttl_ms(AN_HOUR_MS).owner("long-owner").op()).await;
        held.insert(name, (granted.token, granted.fence));
    }
    held
}

/// Takes and gives back locks that nobody ever takes again.
async fn cycle(cluster: &Cluster, through: NodeId, cycles: usize) {
    for number in 0..cycles {
        let name = format!("cycle {number}");
        let granted = cluster.grant(through, acquire(&name).op()).await;
        cluster.submit(through, release(&name, granted.token)).await.unwrap();
    }
}

/// Every hold is in force, with the token and the fence that it was granted with.
async fn must_hold(cluster: &Cluster, through: NodeId, held: &Held) {
    for (name, (token, fence)) in held {
        let renewed = cluster.submit(through, renew(name, *token, AN_HOUR_MS)).await.unwrap();
        assert!(matches!(renewed.outcome, Outcome::Renewed(ref renewal) if renewal.fence == *fence), "{name}");
    }
}

fn state<R>(cluster: &Cluster, node_id: NodeId, read: impl FnOnce(&Machine) -> R) -> R {
    cluster.node(node_id).node().machine.with(read)
}

/// Waits until these nodes have applied the same log, and compares their tables.
async fn must_converge(cluster: &Cluster, nodes: &[NodeId]) {
    let applied = |id: &NodeId| state(cluster, *id, |machine| (machine.is_complete(), machine.applied_index()));
    // Ticks go on, so that the moment of equal logs is looked for, and the tables are taken in it.
    until("the nodes hold equal tables", || {
        let before: Vec<_> = nodes.iter().map(applied).collect();
        let tables: Vec<_> = nodes.iter().map(|id| state(cluster, *id, |machine| machine.table.clone())).collect();
        let same_moment = before.iter().all(|seen| seen.0 && seen.1 == before[0].1)
            && nodes.iter().map(applied).collect::<Vec<_>>() == before;
        if same_moment {
            assert!(tables.iter().all(|table| *table == tables[0]), "tables at {} differ: {tables:?}", before[0].1);
        }
        same_moment
    })
    .await;
}

fn restated(cluster: &Cluster, node_id: NodeId) -> u64 {
    cluster.node(node_id).node().metrics.compaction.restated.get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_records_are_restated_so_that_the_log_stays_short_and_all_is_still_held() {
    let cluster = Cluster::start_with(1, SHORT).await;
    let held = hold_long(&cluster, 1, 30).await;
    let node = cluster.node(1).node();
    let live = state(&cluster, 1, |machine| machine.table.live_bytes() + 30 * ENTRY_EXTRA_BYTES);
    let kept_before_label = 2 * SHORT.snapshot_entries * 200;
    let bound = SHORT.tail_bytes_max.max(2 * live) + SHORT.snapshot_bytes + kept_before_label;
    for _ in 0..20 {
        cycle(&cluster, 1, 20).await;
        until(&format!("the log has {bound} bytes at most"), || node.log.tail_stats().1 <= bound).await;
    }
    let written = node.log.bytes_written();
    assert!(written > 3 * bound, "only {written} bytes were written");
    assert!(node.log.purged().is_some_and(|purged| purged.index() > 300));
    assert!(restated(&cluster, 1) >= 30, "all of them were restated");
    assert!(restated(&cluster, 1) * live / 30 <= written / 2 + live, "at most every second byte is a restated one");
    assert!(node.machine.with(Machine::snapshots_made).0 > 2, "a few snapshots");
    must_hold(&cluster, 1, &held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_held_locks_alone_is_not_restated_for_ever() {
    let cluster = Cluster::start_with(1, LogLimits { tail_bytes_max: 4_096, ..SHORT }).await;
    let held = hold_long(&cluster, 1, 100).await;
    cycle(&cluster, 1, 100).await;
    let before = (restated(&cluster, 1), cluster.node(1).view().last_log);
    until("ticks go by", || cluster.node(1).view().last_log >= before.1 + 8).await;
    let more = restated(&cluster, 1) - before.0;
    assert!(more <= 24, "{more} records restated within 8 ticks");
    must_hold(&cluster, 1, &held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_lagged_behind_the_purge_gets_the_snapshot_and_the_tail() {
    let cluster = Cluster::start_with(3, SHORT).await;
    let leader = cluster.leader().await;
    let others = cluster.others(leader);
    let (lagging, near) = (others[0], others[1]);
    let held = hold_long(&cluster, leader, 20).await;
    let let_go = cluster.grant(leader, acquire("let go meanwhile").ttl_ms(AN_HOUR_MS).op()).await;
    must_converge(&cluster, &[1, 2, 3]).await;
    let behind = cluster.node(lagging).view().last_log;
    cluster.isolate(lagging, true);
    cluster.submit(near, release("let go meanwhile", let_go.token)).await.unwrap();
    cycle(&cluster, near, 150).await;
    must_purge(&cluster, &[leader, near], behind).await;
    cluster.isolate(lagging, false);
    until("it got a snapshot", || state(&cluster, lagging, Machine::snapshots_made).1 > 0).await;
    must_converge(&cluster, &[1, 2, 3]).await;
    must_hold(&cluster, lagging, &held).await;
    assert_eq!(cluster.node(lagging).read_stale(&lock("let go meanwhile")), Ok(None), "its end lay before the label");
    assert_eq!(state(&cluster, near, Machine::snapshots_made).1, 0, "a follower within reach is waited for");
    assert!(cluster.node(lagging).readiness().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_below_built_at_serves_nothing_until_it_has_the_tail() {
    let cluster = Cluster::start_with(3, SHORT).await;
    let leader = cluster.leader().await;
    let lagging = cluster.others(leader)[0];
    hold_long(&cluster, leader, 5).await;
    must_converge(&cluster, &[1, 2, 3]).await;
    cluster.isolate(lagging, true);
    cycle(&cluster, leader, 50).await;
    let taken = cluster.node(leader).snapshot(Duration::from_secs(20)).await.unwrap();
    assert!(taken.built_at > taken.index, "holds lie behind its label: {taken:?}");
    let raft = &cluster.node(leader).node().raft;
    let snapshot = raft.get_snapshot().await.unwrap().unwrap();
    let vote = raft.with_raft_state(|state| *state.vote_ref()).await.unwrap();

    // The snapshot arrives, and the tail does not.
    let node = cluster.node(lagging);
    node.node().raft.install_full_snapshot(vote, snapshot).await.unwrap();
    until("it is installed", || state(&cluster, lagging, Machine::snapshots_made).1 == 1).await;
    assert_eq!(node.readiness(), Err(NotReady::CatchingUp));
    assert_eq!(node.read_stale(&lock("held long 1")).unwrap_err(), SubmitError::CatchingUp);
    assert_eq!(node.snapshot(Duration::from_secs(1)).await, Err(SnapshotError::CatchingUp));

    cluster.isolate(lagging, false);
    until("it is ready", || node.readiness().is_ok()).await;
    assert!(node.read_stale(&lock("held long 1")).unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_on_request_reaches_all_that_was_logged_and_keeps_every_hold() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let held = hold_long(&cluster, leader, 20).await;
    cycle(&cluster, leader, 50).await;
    for node_id in [cluster.others(leader)[0], leader] {
        let asked_at = cluster.node(leader).view().applied;
        let taken = cluster.node(node_id).snapshot(Duration::from_secs(20)).await.unwrap();
        assert!(taken.index >= asked_at && taken.built_at > taken.index, "{taken:?} asked at {asked_at}");
        let view = cluster.node(node_id).view();
        assert_eq!(view.snapshot.map(|snapshot| (snapshot.index, snapshot.bytes)), Some((taken.index, taken.bytes)));
        assert_eq!(taken.purged_to, taken.index, "no follower within reach lacks any of it");
    }
    assert!(restated(&cluster, leader) >= 40, "both calls restated every hold");
    must_hold(&cluster, leader, &held).await;
    must_converge(&cluster, &[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_on_request_without_a_quorum_says_so() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    hold_long(&cluster, leader, 3).await;
    for node_id in 1..=3 {
        cluster.isolate(node_id, true);
    }
    for node_id in 1..=3 {
        let why = cluster.node(node_id).snapshot(Duration::from_millis(700)).await.unwrap_err();
        assert!(matches!(why, SnapshotError::NoLeader | SnapshotError::NotInTime), "{why:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_cannot_be_written_stops_the_node() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node(1);
    hold_long(&cluster, 1, 1).await;
    std::fs::remove_dir_all(node.node().config.data_dir.join("snapshots")).unwrap();
    assert!(node.snapshot(Duration::from_secs(20)).await.is_err());
    let reason = node.stopped().await;
    assert!(matches!(&reason, StopReason::Storage(why) if why.contains("snapshot")), "{reason:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_converge_under_snapshots_cuts_and_restarts() {
    let mut cluster = Cluster::start_with(3, LogLimits { snapshot_age_ms: 200, ..SHORT }).await;
    let leader = cluster.leader().await;
    let held = hold_long(&cluster, leader, 15).await;
    for round in 0..6 {
        let struck = round % 3 + 1;
        let is_cut_off = round % 2 == 0;
        if is_cut_off {
            cluster.isolate(struck, true);
        } else {
            cluster.restart(struck).await;
        }
        let others = cluster.others(struck);
        // One that was restarted may lead again.
        let leader = if is_cut_off { cluster.leader_of(&others).await } else { cluster.leader().await };
        cycle_through_changes(&cluster, leader, round, 150).await;
        if is_cut_off {
            let behind = cluster.node(struck).view().applied;
            must_purge(&cluster, &others, behind).await;
        }
        let installed = state(&cluster, struck, Machine::snapshots_made).1;
        cluster.isolate(struck, false);
        must_converge(&cluster, &[1, 2, 3]).await;
        if is_cut_off {
            assert!(state(&cluster, struck, Machine::snapshots_made).1 > installed, "what it lacked was purged");
        }
    }
    must_hold(&cluster, 1, &held).await;
}

/// Cycles whose answers may be lost to a change of leader.
async fn cycle_through_changes(cluster: &Cluster, through: NodeId, round: u64, cycles: usize) {
    for number in 0..cycles {
        let name = format!("cycle {number} of round {round}");
        if let Ok(reply) = cluster.submit(through, acquire(&name).ttl_ms(5_000).op()).await
            && let Outcome::Granted(grant) = reply.outcome
        {
            let _unknown_to_nobody = cluster.submit(through, release(&name, grant.token)).await;
        }
    }
}

async fn must_purge(cluster: &Cluster, nodes: &[NodeId], past: u64) {
    for node in nodes {
        until("the log is purged", || {
            cluster.node(*node).node().log.purged().is_some_and(|purged| purged.index() > past)
        })
        .await;
    }
}
