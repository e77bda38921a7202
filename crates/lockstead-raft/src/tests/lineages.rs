//! Lineages that go on from a backup, or from a survivor.

use std::time::Duration;

use lockstead_core::units::FENCE_MAX;
use lockstead_core::{ClusterId, Fence, HeldBy, HoldOff, Outcome, Residue, WallTime};

use super::cluster::{Cluster, LogLimits, acquire, release, until};
use crate::platform::{Host, Platform};
use crate::{Backup, JoinAs, LineageError, NewLineage, RecoverError, RestoreError, recover};

const HOLDERS_ARE_DEAD: NewLineage = NewLineage { hold_off: HoldOff::HoldersAreDead, fence_floor: None };

fn held_off_for(length_ms: u64) -> NewLineage {
    NewLineage { hold_off: HoldOff::Length(length_ms), fence_floor: None }
}

fn residue(cluster: &Cluster, node_id: u64) -> Residue {
    cluster.node(node_id).node().machine.with(|state| state.table.residue())
}

/// What a cluster of one gives after it has granted two locks, one of them released.
async fn backup() -> (Backup, u64) {
    let cluster = Cluster::start(1).await;
    cluster.grant(1, acquire("held").ttl_ms(70_000).op()).await;
    let last = cluster.grant(1, acquire("held too").op()).await;
    (cluster.node(1).back_up().unwrap(), last.fence.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_residue_reaches_every_node_whenever_it_joins() {
    let (backup, _) = backup().await;
    let mut cluster = Cluster::start_empty(3).await;
    let begun = cluster.node(1).restore(&backup, HOLDERS_ARE_DEAD).await.unwrap();
    assert_ne!(begun.cluster_id, backup.cluster_id);
    assert!(begun.last_fence.0 > Host.wall().0 * 1_000 - 60_000_000, "{begun:?}");
    cluster.join(2, JoinAs::Voter).await.unwrap();
    let granted = cluster.grant(2, acquire("held").op()).await;
    assert_eq!(granted.fence.0, begun.last_fence.0 + 1, "no hold was restored");
    // The third gets a snapshot that was taken since, and the log behind it.
    cluster.node(1).snapshot(Duration::from_secs(10)).await.unwrap();
    cluster.join(3, JoinAs::Voter).await.unwrap();
    cluster.grant(3, acquire("another").op()).await;
    for node_id in 1..=3 {
        until("each node knows all fences", || residue(&cluster, node_id).last_fence.0 == granted.fence.0 + 1).await;
        assert_eq!(residue(&cluster, node_id).ttl_max_ms, 70_000, "node {node_id}");
        assert_eq!(cluster.node(node_id).cluster_id(), Some(begun.cluster_id));
    }
    for node_id in 1..=3 {
        cluster.restart(node_id).await;
    }
    cluster.leader().await;
    let next = cluster.grant(2, acquire("a third").op()).await;
    assert_eq!(next.fence.0, granted.fence.0 + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_before_the_hold_off_ends_and_then_it_is() {
    let (backup, _) = backup().await;
    let cluster = Cluster::start_empty(1).await;
    let begun = cluster.node(1).restore(&backup, held_off_for(1_200)).await.unwrap();
    assert_eq!(begun.hold_off_ms, 1_200);
    until("it leads", || cluster.node(1).readiness().is_ok()).await;
    let tried = cluster.submit(1, acquire("free").op()).await.unwrap();
    let Outcome::Held(HeldBy { hold_off_ms, holders, .. }) = tried.outcome else { panic!("{tried:?}") };
    assert!((1..=1_200).contains(&hold_off_ms) && holders.is_empty(), "{hold_off_ms}");
    assert!((1..=1_200).contains(&cluster.node(1).view().hold_off_ms));
    cluster.grant(1, acquire("free").wait_ms(20_000).op()).await;
    assert_eq!(cluster.node(1).view().hold_off_ms, 0);
    let no_grant_before = residue(&cluster, 1).no_grant_before;
    assert_eq!(no_grant_before, backup.residue.time.plus_ms(1_200));
    let granted_at = residue(&cluster, 1).time;
    assert!(granted_at >= no_grant_before, "{granted_at:?} {no_grant_before:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_from_the_future_and_a_node_with_a_cluster_restore_nothing() {
    let (backup, _) = backup().await;
    let cluster = Cluster::start_empty(1).await;
    let future = Backup { taken_at: WallTime(Host.wall().0 + 60_000), ..backup.clone() };
    let refused = cluster.node(1).restore(&future, HOLDERS_ARE_DEAD).await;
    assert!(matches!(refused, Err(RestoreError::Lineage(LineageError::ClockBehind(_)))), "{refused:?}");
    assert_eq!(cluster.node(1).cluster_id(), None);
    cluster.node(1).restore(&backup, HOLDERS_ARE_DEAD).await.unwrap();
    assert_eq!(cluster.node(1).restored_from(), Some(backup.checksum()));
    until("it leads", || cluster.node(1).readiness().is_ok()).await;
    let again = cluster.node(1).restore(&backup, HOLDERS_ARE_DEAD).await;
    assert!(matches!(again, Err(RestoreError::Bootstrap(_))), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survivor_counts_what_it_did_not_know_to_be_committed() {
    // A tick that is in flight as the leader is cut off would keep the last acquire out of the log.
    let mut cluster = Cluster::start_with(3, LogLimits { tick_ms: 60_000, ..LogLimits::default() }).await;
    cluster.grant(1, acquire("committed").ttl_ms(40_000).op()).await;
    // A read that was under way when the leader was cut off keeps what comes behind it out of the log.
    let mut ttl_ms = 50_000;
    let leader = loop {
        let leader = cluster.leader().await;
        cluster.isolate(leader, true);
        let last_log = || cluster.node(leader).view().last_log;
        let before = last_log();
        let lost = cluster.submit(leader, acquire("not committed").ttl_ms(ttl_ms).op()).await;
        assert!(lost.is_err(), "{lost:?}");
        if last_log() > before {
            break leader;
        }
        ttl_ms += 1_000;
        cluster.isolate(leader, false);
    };
    let old = cluster.node(leader).cluster_id().unwrap();
    let dir = cluster.stop(leader).await;

    let wrong = recover(&dir, ClusterId(old.0 ^ 1), HOLDERS_ARE_DEAD).await;
    assert!(matches!(wrong, Err(RecoverError::OtherCluster { found, .. }) if found == old), "{wrong:?}");
    let standard = NewLineage { hold_off: HoldOff::Standard { ttl_max_ms: 30_000 }, fence_floor: None };
    let recovered = recover(&dir, old, standard).await.unwrap();
    assert_eq!((recovered.node_id, recovered.begun.hold_off_ms), (leader, u64::try_from(ttl_ms).unwrap()));
    // A new lineage has nothing to recover of the old one.
    let again = recover(&dir, old, standard).await;
    assert!(matches!(again, Err(RecoverError::OtherCluster { found, .. }) if found == recovered.begun.cluster_id));
    let twice = recover(&dir, recovered.begun.cluster_id, standard).await.unwrap();
    assert!(twice.begun.last_fence > recovered.begun.last_fence);
    assert_eq!(twice.begun.hold_off_ms, recovered.begun.hold_off_ms, "an earlier hold-off stays");
    let thrice = recover(&dir, twice.begun.cluster_id, HOLDERS_ARE_DEAD).await.unwrap();
    assert_eq!(thrice.begun.hold_off_ms, 0, "unless the operator says otherwise");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_behind_any_file_of_a_survivor_is_refused_again_and_again_unless_a_floor_is_named() {
    let mut cluster = Cluster::start(1).await;
    let granted = cluster.grant(1, acquire("released").op()).await;
    cluster.submit(1, release("released", granted.token)).await.unwrap();
    cluster.node(1).snapshot(Duration::from_secs(10)).await.unwrap();
    let old = cluster.node(1).cluster_id().unwrap();
    let dir = cluster.stop(1).await;
    let snapshot = std::fs::read_dir(dir.join("snapshots")).unwrap().next().unwrap().unwrap().path();
    let files = [dir.join("identity.json"), dir.join("log/journal/1.seg"), dir.join("log/db"), snapshot];
    for file in files {
        let file = std::fs::File::options().write(true).open(&file).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        file.set_modified(written + Duration::from_hours(1)).unwrap();
        for _ in 0..2 {
            let refused = recover(&dir, old, HOLDERS_ARE_DEAD).await;
            let Err(RecoverError::Lineage(LineageError::ClockBehind(behind_ms))) = refused else {
                panic!("{refused:?}")
            };
            assert!((1..=3_600_000).contains(&behind_ms), "{behind_ms}");
        }
        file.set_modified(written).unwrap();
    }
    let file = std::fs::File::options().write(true).open(dir.join("log/db")).unwrap();
    file.set_modified(file.metadata().unwrap().modified().unwrap() + Duration::from_hours(1)).unwrap();
    let floor = NewLineage { fence_floor: Some(Fence(FENCE_MAX.0 - 9)), ..HOLDERS_ARE_DEAD };
    let recovered = recover(&dir, old, floor).await.unwrap();
    assert_eq!(recovered.begun.last_fence, Fence(FENCE_MAX.0 - 9));
    // Its fences lie above the wall clock now.
    let again = recover(&dir, recovered.begun.cluster_id, HOLDERS_ARE_DEAD).await;
    assert!(matches!(again, Err(RecoverError::Lineage(LineageError::ClockBehind(_)))), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_a_member_cannot_be_recovered() {
    let home = tempfile::tempdir().unwrap();
    let nowhere = recover(&home.path().join("none"), ClusterId(1), HOLDERS_ARE_DEAD).await;
    assert!(matches!(nowhere, Err(RecoverError::NoNode(_))), "{nowhere:?}");
    let mut cluster = Cluster::start_empty(1).await;
    let empty = cluster.stop(1).await;
    let empty = recover(&empty, ClusterId(1), HOLDERS_ARE_DEAD).await;
    assert!(matches!(empty, Err(RecoverError::NoNode(_))), "{empty:?}");
}
