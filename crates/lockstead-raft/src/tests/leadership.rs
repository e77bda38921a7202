//! What holds when leaders change.

use std::sync::Arc;
use std::time::Duration;

use lockstead_core::Outcome;
use tokio::time::{Instant, timeout};

use super::cluster::{Cluster, acquire, get, lock, release, renew, until};
use crate::{NotReady, SubmitError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_off_leader_answers_nothing_and_grants_nothing() {
    let cluster = Cluster::start(3).await;
    let old = cluster.leader().await;
    let held = cluster.grant(old, acquire("a").ttl_ms(60_000).op()).await;
    cluster.isolate(old, true);
    let refused = [
        cluster.node(old).submit(get("a"), Duration::from_millis(700)).await,
        cluster.node(old).submit(acquire("a").op(), Duration::from_millis(700)).await,
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err(), SubmitError::NoLeader, "a refusal that was never proposed changed nothing");
    }
    let unsure = cluster.node(old).submit(acquire("b").op(), Duration::from_millis(700)).await;
    assert!(matches!(unsure, Err(SubmitError::OutcomeUnknown | SubmitError::NoLeader)), "{unsure:?}");
    let others = cluster.others(old);
    let new = cluster.leader_of(&others).await;
    let renewed = cluster.submit(new, renew("a", held.token, 60_000)).await.unwrap();
    assert!(matches!(renewed.outcome, Outcome::Renewed(renewal) if renewal.fence == held.fence));
    cluster.isolate(old, false);
    until("the old leader follows", || cluster.node(old).leader().is_some_and(|leader| leader.node_id == new)).await;
    let through_old = cluster.submit(old, release("a", held.token)).await.unwrap();
    assert_eq!(through_old.outcome, Outcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_without_a_quorum_is_not_given_up_and_no_fence_is_granted_twice() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let before = cluster.grant(leader, acquire("before").op()).await;
    // Both followers stop answering; openraft refuses new writes only once its lease has run out.
    for other in cluster.others(leader) {
        cluster.isolate(other, true);
    }
    let unsure = cluster.node(leader).submit(acquire("in doubt").op(), Duration::from_millis(400)).await;
    assert!(matches!(unsure, Err(SubmitError::OutcomeUnknown | SubmitError::NoLeader)), "{unsure:?}");
    let behind = cluster.node(leader).submit(acquire("behind").op(), Duration::from_millis(300)).await;
    assert_eq!(behind.unwrap_err(), SubmitError::NoLeader, "nothing is decided behind a batch in flight");
    for other in cluster.others(leader) {
        cluster.isolate(other, false);
    }
    let now_leading = cluster.leader().await;
    let mut fences = vec![before.fence];
    for name in ["in doubt", "behind", "after"] {
        let granted = cluster.submit(now_leading, acquire(name).op()).await.unwrap();
        match granted.outcome {
            Outcome::Granted(grant) => fences.push(grant.fence),
            // The batch in doubt was committed after all, and nobody was told its fence.
            Outcome::Held(held) if name == "in doubt" => fences.push(held.holders[0].fence),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_and_waiters_go_along() {
    let cluster = Arc::new(Cluster::start(3).await);
    let old = cluster.leader().await;
    let through = cluster.others(old)[0];
    let held = cluster.grant(old, acquire("a").ttl_ms(60_000).op()).await;
    let waiter = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.submit(through, acquire("a").wait_ms(30_000).op()).await }
    });
    let term = cluster.node(old).view().term;
    cluster.node(old).hand_over(Duration::from_secs(10)).await;
    let new = cluster.leader_of(&cluster.others(old)).await;
    assert!(cluster.node(new).view().term > term, "every office is a new term");
    let renewed = cluster.submit(new, renew("a", held.token, 60_000)).await.unwrap();
    assert!(matches!(renewed.outcome, Outcome::Renewed(_)));
    cluster.submit(new, release("a", held.token)).await.unwrap();
    // It was passed on to the old leader: either its office told it to go elsewhere, or it hears that nobody knows.
    match timeout(Duration::from_secs(20), waiter).await.expect("it ends").unwrap() {
        Ok(reply) => assert!(matches!(reply.outcome, Outcome::Granted(_)), "{reply:?}"),
        Err(why) => assert_eq!(why, SubmitError::OutcomeUnknown),
    }
    let drained = cluster.node(old).submit(get("a"), Duration::from_secs(5)).await;
    assert_eq!(drained.unwrap_err(), SubmitError::NoLeader, "a node that stops takes nothing more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_without_a_quorum_does_not_count_against_a_hold() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let held = cluster.grant(leader, acquire("a").ttl_ms(1_500).op()).await;
    for other in cluster.others(leader) {
        cluster.isolate(other, true);
    }
    let cut_at = Instant::now();
    until("the TTL has run out on the wall clock", || cut_at.elapsed() > Duration::from_millis(2_500)).await;
    for other in cluster.others(leader) {
        cluster.isolate(other, false);
    }
    let now_leading = cluster.leader().await;
    let renewed = cluster.submit(now_leading, renew("a", held.token, 30_000)).await.unwrap();
    assert!(matches!(renewed.outcome, Outcome::Renewed(ref renewal) if renewal.fence == held.fence), "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_holds_the_same_table() {
    let cluster = Cluster::start(3).await;
    for round in 0..20 {
        let name = format!("lock {round}");
        let granted = cluster.grant(round % 3 + 1, acquire(&name).op()).await;
        if round % 2 == 0 {
            cluster.submit(1, release(&name, granted.token)).await.unwrap();
        }
    }
    for round in 0..20 {
        let key = lock(&format!("lock {round}"));
        until("all nodes agree on a lock", || {
            let mut views =
                (1..=3).map(|id| cluster.node(id).read_stale(&key).unwrap().map(|view| view.holders[0].fence));
            let first = views.next().unwrap();
            first.is_some() == (round % 2 == 1) && views.all(|view| view == first)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_hold_counts_from_the_decision_however_long_its_batch_takes() {
    let cluster = Arc::new(Cluster::start(3).await);
    for round in 0..20 {
        let leader = cluster.leader().await;
        let others = cluster.others(leader);
        for other in &others {
            cluster.isolate(*other, true);
        }
        let slow = tokio::spawn({
            let (cluster, name) = (Arc::clone(&cluster), format!("slow {round}"));
            async move { cluster.node(leader).submit(acquire(&name).ttl_ms(10_000).op(), Duration::from_secs(20)).await }
        });
        let cut_at = Instant::now();
        until("the batch has waited for a second", || cut_at.elapsed() > Duration::from_secs(1)).await;
        for other in &others {
            cluster.isolate(*other, false);
        }
        // Another may lead by now: then the outcome is unknown, and the next round tries again.
        if let Ok(reply) = slow.await.unwrap()
            && let Outcome::Granted(grant) = reply.outcome
            && reply.waited_ms < 100
        {
            assert!(grant.left_ms <= 9_100, "{} ms left after a commit of a second", grant.left_ms);
            return;
        }
    }
    panic!("no batch survived the cut under its own leader");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_refused_for_a_lapsed_lease_is_decided_afresh_and_nothing_becomes_unknown() {
    let cluster = Arc::new(Cluster::start(3).await);
    let leader = cluster.leader().await;
    let others = cluster.others(leader);
    for other in &others {
        cluster.isolate(*other, true);
    }
    // openraft's lease on its office is the longest election timeout; after it, it takes no batch.
    let cut_at = Instant::now();
    until("the leader's lease has lapsed", || cut_at.elapsed() > Duration::from_millis(1_500)).await;
    let requests: Vec<_> = (0..5)
        .map(|number| {
            let (cluster, name) = (Arc::clone(&cluster), format!("patient {number}"));
            tokio::spawn(async move {
                cluster.node(leader).submit(acquire(&name).ttl_ms(60_000).op(), Duration::from_secs(20)).await
            })
        })
        .collect();
    let refused_at = Instant::now();
    until("the batch was refused", || refused_at.elapsed() > Duration::from_millis(200)).await;
    for other in &others {
        cluster.isolate(*other, false);
    }
    let mut fences = Vec::new();
    for request in requests {
        let reply = request.await.unwrap().expect("surely refused is never unknown");
        let Outcome::Granted(grant) = reply.outcome else { panic!("not granted") };
        fences.push(grant.fence);
    }
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 5, "each has a fence of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_no_quorum_answers_is_not_ready() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    for other in cluster.others(leader) {
        cluster.isolate(other, true);
    }
    until("the leader knows that nobody follows", || cluster.node(leader).readiness() == Err(NotReady::NoLeader)).await;
    for other in cluster.others(leader) {
        cluster.isolate(other, false);
    }
    until("all are ready again", || (1..=3).all(|id| cluster.node(id).readiness().is_ok())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_is_ready_only_once_it_may_vote() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let others = cluster.others(leader);
    let (restarted, unheard) = (others[0], others[1]);
    // It asks all others whether it may vote, and this one lets it wait.
    cluster.silence(restarted, unheard);
    cluster.restart(restarted).await;
    let node = cluster.node(restarted);
    until("it is ready", || node.readiness().is_ok()).await;
    assert!(node.node().standing.votes(), "whoever rolls the others now counts on its vote");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_in_flight_over_the_end_of_its_term_is_unknown_and_not_sent_elsewhere() {
    let cluster = Arc::new(Cluster::start(3).await);
    let old = cluster.leader().await;
    cluster.isolate(old, true);
    // Well within openraft's lease on the office, and long after the links have closed.
    let cut_at = Instant::now();
    until("the links are closed", || cut_at.elapsed() > Duration::from_millis(100)).await;
    let doubtful = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.node(old).submit(acquire("a").op(), Duration::from_secs(30)).await }
    });
    let others = cluster.others(old);
    let new = cluster.leader_of(&others).await;
    cluster.isolate(old, false);
    assert_eq!(doubtful.await.unwrap().unwrap_err(), SubmitError::OutcomeUnknown);
    until("the old leader follows", || cluster.node(old).leader().is_some_and(|leader| leader.node_id == new)).await;
    cluster.grant(new, acquire("b").op()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_link_breaks_after_it_was_sent_is_unknown_and_not_sent_again() {
    let cluster = Arc::new(Cluster::start(3).await);
    let leader = cluster.leader().await;
    let follower = cluster.others(leader)[0];
    cluster.grant(leader, acquire("a").ttl_ms(60_000).op()).await;
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.submit(follower, acquire("a").wait_ms(3_000).op()).await }
    });
    let queued = async {
        while !matches!(cluster.submit(leader, get("a")).await.unwrap().outcome, Outcome::Got(view) if view.waiters.len() == 1)
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), queued).await.expect("the leader has it");
    cluster.isolate(follower, true);
    assert_eq!(waiting.await.unwrap().unwrap_err(), SubmitError::OutcomeUnknown);
}
