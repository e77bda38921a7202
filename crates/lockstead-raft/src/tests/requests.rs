//! What a request may count on, whichever node takes it.

use std::sync::Arc;
use std::time::Duration;

use lockstead_core::Outcome;
use tokio::time::{Instant, timeout};

use super::cluster::{Cluster, acquire, get, release, renew, until};
use crate::{JoinAs, JoinError, NotReady, SubmitError};

const MULTI: &str = "the test runs nodes beside each other";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_takes_every_request() {
    let cluster = Cluster::start(3).await;
    let mut last_fence = None;
    for id in 1..=3 {
        let granted = cluster.grant(id, acquire("a").op()).await;
        assert!(Some(granted.fence) > last_fence, "{MULTI}");
        last_fence = Some(granted.fence);
        let elsewhere = id % 3 + 1;
        let held = cluster.submit(elsewhere, acquire("a").op()).await.unwrap();
        assert!(matches!(held.outcome, Outcome::Held(held) if held.holders[0].fence == granted.fence));
        let renewed = cluster.submit(elsewhere, renew("a", granted.token, 5_000)).await.unwrap();
        let Outcome::Renewed(renewal) = renewed.outcome else { panic!("not renewed") };
        assert_eq!(renewal.fence, granted.fence);
        assert!(renewal.left_ms <= 5_000);
        let got = cluster.submit(elsewhere, get("a")).await.unwrap();
        assert!(matches!(got.outcome, Outcome::Got(view) if view.holders[0].left_ms <= 5_000));
        let released = cluster.submit(elsewhere, release("a", granted.token)).await.unwrap();
        assert_eq!(released.outcome, Outcome::Released);
        let again = cluster.submit(id, release("a", granted.token)).await.unwrap();
        assert_eq!(again.outcome, Outcome::NotHolder);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_and_the_grant_to_the_next_waiter_are_one_entry() {
    let cluster = Arc::new(Cluster::start(1).await);
    let first = cluster.grant(1, acquire("a").op()).await;
    let waiter = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.grant(1, acquire("a").wait_ms(20_000).op()).await }
    });
    let queue_is_seen = async {
        loop {
            match cluster.submit(1, get("a")).await.unwrap().outcome {
                Outcome::Got(view) if view.waiters.len() == 1 => return,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    timeout(Duration::from_secs(10), queue_is_seen).await.unwrap();
    let before = cluster.node(1).view().last_log;
    cluster.submit(1, release("a", first.token)).await.unwrap();
    let second = waiter.await.unwrap();
    // Ticks may come between; a hand-over of two entries would leave the grant one entry behind the release.
    assert!(second.fence > first.fence);
    let stated = cluster.node(1).view().last_log - before;
    assert!(stated <= 2, "{stated} entries for one hand-over and at most one tick");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_goes_is_skipped_on_its_own_node_and_behind_another() {
    let cluster = Arc::new(Cluster::start(3).await);
    let leader = cluster.leader().await;
    for node in [leader, cluster.others(leader)[0]] {
        let name = format!("waited-for through {node}");
        let held = cluster.grant(leader, acquire(&name).op()).await;
        let gone = timeout(Duration::from_millis(100), cluster.submit(node, acquire(&name).wait_ms(20_000).op())).await;
        assert!(gone.is_err(), "it waits");
        let patient = tokio::spawn({
            let (cluster, name) = (Arc::clone(&cluster), name.clone());
            async move { cluster.grant(node, acquire(&name).wait_ms(20_000).op()).await }
        });
        cluster.submit(node, release(&name, held.token)).await.unwrap();
        let granted = timeout(Duration::from_secs(5), patient).await.expect("the waiter that stayed has it").unwrap();
        cluster.submit(node, release(&name, granted.token)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_reached_nobody_is_given_back_before_its_ttl() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.others(leader)[0];
    let mut dropped = 0;
    for round in 0..60_u64 {
        let name = format!("raced {round}");
        let node = if round % 2 == 0 { leader } else { follower };
        let mut request = Box::pin(cluster.submit(node, acquire(&name).ttl_ms(60_000).op()));
        let mut answered = false;
        // Dropped at some moment before its answer: queued, in flight, or just decided.
        let started = Instant::now();
        while !answered && started.elapsed() < Duration::from_micros(round * 40) {
            answered = futures::poll!(&mut request).is_ready();
            tokio::task::yield_now().await;
        }
        drop(request);
        if !answered {
            dropped += 1;
            let retried = cluster.submit(leader, acquire(&name).wait_ms(5_000).op()).await.unwrap();
            assert!(matches!(retried.outcome, Outcome::Granted(_)), "round {round}: {retried:?}");
        }
    }
    assert!(dropped > 5, "only {dropped} requests were dropped unanswered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_gets_the_grant_it_already_has() {
    let cluster = Cluster::start(3).await;
    let request = || acquire("a").request_id("0123456789abcdef").op();
    let first = cluster.grant(1, request()).await;
    let second = cluster.grant(2, request()).await;
    assert_eq!((first.fence, first.token), (second.fence, second.token));
    assert!(!second.fresh, "nobody may give it back any more");
    let other = cluster.submit(3, acquire("a").owner("me").request_id("0123456789abcdef").op()).await.unwrap();
    assert_eq!(other.outcome, Outcome::RequestIdReused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lock_goes_to_the_waiter_and_never_early() {
    let cluster = Cluster::start(1).await;
    let started = tokio::time::Instant::now();
    cluster.grant(1, acquire("a").ttl_ms(700).op()).await;
    let second = cluster.grant(1, acquire("a").wait_ms(20_000).op()).await;
    assert!(started.elapsed() >= Duration::from_millis(700));
    assert!(second.left_ms > 29_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_passes_requests_on_and_is_not_ready() {
    let cluster = Cluster::start_empty(2).await;
    assert_eq!(cluster.node(2).readiness(), Err(NotReady::NotJoined));
    assert_eq!(cluster.node(2).cluster_id(), None);
    cluster.node(1).bootstrap().await.unwrap();
    cluster.join(2, JoinAs::Learner).await.unwrap();
    assert_eq!(cluster.node(2).readiness(), Err(NotReady::NotVoter));
    assert_eq!(cluster.node(2).cluster_id(), cluster.node(1).cluster_id());
    let granted = cluster.grant(2, acquire("a").op()).await;
    until("the learner's own table holds the lock", || {
        cluster.node(2).read_stale(&super::cluster::lock("a")).is_ok_and(|view| view.is_some())
    })
    .await;
    cluster.submit(1, release("a", granted.token)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_directory_under_the_id_of_a_member_is_refused() {
    let cluster = Cluster::start(2).await;
    let stranger = Cluster::start_empty(2).await;
    let address = cluster.node(1).view().peer;
    let refused = stranger.node(2).join(&[address], JoinAs::Voter).await;
    assert!(matches!(&refused, Err(JoinError::Refused(text)) if text.contains("member with")), "{refused:?}");
    assert!(cluster.node(1).bootstrap().await.is_err(), "a member founds nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_cluster_nothing_is_granted() {
    let cluster = Cluster::start_empty(1).await;
    let submitted = cluster.node(1).submit(acquire("a").op(), Duration::from_millis(200)).await;
    assert_eq!(submitted.unwrap_err(), SubmitError::NoLeader);
}
