//! The client against nodes that answer by script.

mod fake;

use std::time::Duration;

use fake::{FakeNode, Step, error, error_after, nobody, say};
use lockstead_client::{
    Acquire, AcquireOutcome, CallError, Claim, Client, ClientConfig, Endpoint, Freshness, GetOutcome, MemberChange,
    MemberTerms, ReleaseOutcome, Renew, RenewOutcome, Wait,
};

const GRANT: &str = r#"{"name":"l","token":"000102030405060708090a0b0c0d0e0f","fence":7,"ttl_ms":30000,"expires_in_ms":30000,"waited_ms":0,"renewed":false}"#;
const HELD: &str = r#"{"error":{"code":"held","message":"m","holders":[],"queue_len":3}}"#;

fn client(endpoints: &[&Endpoint]) -> Client {
    client_with(endpoints, Duration::from_secs(10))
}

fn client_with(endpoints: &[&Endpoint], timeout: Duration) -> Client {
    Client::new(endpoints.iter().map(|endpoint| (*endpoint).clone()).collect(), ClientConfig { timeout })
}

fn acquire(wait: Wait) -> Acquire {
    Acquire { name: "l".into(), wait, ..Acquire::default() }
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_request_id_and_the_time_waited() {
    let node = FakeNode::start(vec![Step::HangUp, error(503, "outcome_unknown"), say(200, GRANT)]).await;
    let wait = Wait::UpTo(Duration::from_secs(20));
    let reply = client(&[&node.endpoint]).acquire(&acquire(wait)).await.unwrap();
    let AcquireOutcome::Granted(granted) = reply.outcome else { panic!("{reply:?}") };
    assert_eq!(granted.answer.fence.0, 7);
    let asked = node.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].body["wait_ms"], 20_000);
    assert!(asked[0].body.get("queued_ms").is_none());
    for later in &asked[1..] {
        assert_eq!(later.body["request_id"], asked[0].body["request_id"]);
        let queued_ms = later.body["queued_ms"].as_u64().unwrap();
        assert!(queued_ms >= 10);
        assert!(queued_ms + later.body["wait_ms"].as_u64().unwrap() <= 20_000);
    }
    assert_eq!(granted.request_id.len(), 32);
    assert_eq!(asked[0].body["request_id"], *granted.request_id);
}

#[tokio::test]
async fn two_acquires_have_two_request_ids_and_no_owner() {
    let node = FakeNode::start(vec![say(409, HELD), say(409, HELD)]).await;
    let client = client(&[&node.endpoint]);
    for _ in 0..2 {
        client.acquire(&acquire(Wait::No)).await.unwrap();
    }
    let asked = node.asked();
    assert_ne!(asked[0].body["request_id"], asked[1].body["request_id"]);
    assert!(asked.iter().all(|asked| asked.body.get("owner").is_none()));
}

#[tokio::test]
async fn held_and_limits_are_outcomes() {
    let limit = r#"{"error":{"code":"limit_exceeded","message":"m","limit":5,"current":5}}"#;
    let node = FakeNode::start(vec![say(409, HELD), say(429, limit)]).await;
    let client = client(&[&node.endpoint]);
    let held = client.acquire(&acquire(Wait::No)).await.unwrap();
    assert!(matches!(&held.outcome, AcquireOutcome::Held(held) if held.queue_len == 3));
    assert_eq!(held.body, HELD.as_bytes());
    let limited = client.acquire(&acquire(Wait::No)).await.unwrap().outcome;
    assert_eq!(limited, AcquireOutcome::LimitExceeded { limit: 5, current: 5 });
}

#[tokio::test]
async fn a_wait_longer_than_five_minutes_goes_on_after_held() {
    let node = FakeNode::start(vec![say(409, HELD), say(200, GRANT)]).await;
    client(&[&node.endpoint]).acquire(&acquire(Wait::Forever)).await.unwrap();
    let asked = node.asked();
    assert_eq!(asked[0].body["wait_ms"], 300_000);
    assert_eq!(asked[0].body["request_id"], asked[1].body["request_id"]);
}

#[tokio::test]
async fn the_leader_named_by_an_answer_is_asked_next() {
    let leader = FakeNode::start(vec![say(200, GRANT)]).await;
    let named = Step::Say(200, GRANT.to_owned(), Some(leader.endpoint.to_string()));
    let follower = FakeNode::start(vec![named]).await;
    let client = client(&[&follower.endpoint]);
    client.acquire(&acquire(Wait::No)).await.unwrap();
    client.acquire(&acquire(Wait::No)).await.unwrap();
    assert_eq!((follower.asked().len(), leader.asked().len()), (1, 1));
}

#[tokio::test]
async fn a_dead_leader_is_left_for_the_other_endpoints() {
    let dead = nobody().await;
    let named = Step::Say(200, GRANT.to_owned(), Some(dead.to_string()));
    let node = FakeNode::start(vec![named, say(200, GRANT)]).await;
    let client = client(&[&node.endpoint]);
    client.acquire(&acquire(Wait::No)).await.unwrap();
    client.acquire(&acquire(Wait::No)).await.unwrap();
    assert_eq!(node.asked().len(), 2);
}

#[tokio::test]
async fn without_a_quorum_the_next_endpoint_is_tried() {
    let first = FakeNode::start(vec![error(503, "no_leader")]).await;
    let second = FakeNode::start(vec![say(200, GRANT)]).await;
    client(&[&first.endpoint, &second.endpoint]).acquire(&acquire(Wait::No)).await.unwrap();
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
}

#[tokio::test]
async fn a_release_after_an_unknown_outcome_takes_not_holder_as_done() {
    let node = FakeNode::start(vec![Step::HangUp, error(409, "not_holder")]).await;
    let reply = client(&[&node.endpoint]).release("l", &"t".into()).await.unwrap();
    assert_eq!(reply.outcome, ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_release_that_surely_changed_nothing_before_does_not() {
    let node = FakeNode::start(vec![error(503, "no_leader"), error(409, "not_holder")]).await;
    let reply = client(&[&node.endpoint]).release("l", &"t".into()).await.unwrap();
    assert_eq!(reply.outcome, ReleaseOutcome::NotHolder);
}

#[tokio::test]
async fn a_renewal_is_repeated_until_a_node_decides() {
    let renewed = r#"{"name":"l","fence":7,"ttl_ms":10000,"expires_in_ms":10000}"#;
    let node = FakeNode::start(vec![Step::HangUp, error(503, "outcome_unknown"), say(200, renewed)]).await;
    let request = Renew { name: "l".into(), claim: Claim::Owner("o".into()), ttl: Some(Duration::from_secs(10)) };
    let reply = client(&[&node.endpoint]).renew(&request).await.unwrap();
    let RenewOutcome::Renewed(renewed) = reply.outcome else { panic!("{reply:?}") };
    let valid_for = renewed.valid_for();
    assert!(valid_for <= Duration::from_millis(9_900) && valid_for > Duration::from_secs(1), "{valid_for:?}");
    let asked = node.asked();
    assert_eq!((&asked[2].body["owner"], &asked[2].body["ttl_ms"]), (&"o".into(), &10_000.into()));
    assert!(asked[2].body.get("token").is_none());
}

#[tokio::test]
async fn a_lease_counts_from_the_try_that_was_answered() {
    let old = GRANT.replace(r#""waited_ms":0"#, r#""waited_ms":5000"#);
    let node = FakeNode::start(vec![Step::HangUp, say(200, &old)]).await;
    let reply = client(&[&node.endpoint]).acquire(&acquire(Wait::No)).await.unwrap();
    let AcquireOutcome::Granted(granted) = reply.outcome else { panic!("{reply:?}") };
    let valid_for = granted.valid_for();
    assert!(valid_for <= Duration::from_millis(35_000 - 300 - 5), "{valid_for:?}");
    assert!(valid_for > Duration::from_secs(30), "{valid_for:?}");
}

#[tokio::test]
async fn what_cannot_be_found_out_says_why() {
    let short = Duration::from_millis(200);
    let dead = nobody().await;
    let unreachable = client_with(&[&dead], short).acquire(&acquire(Wait::No)).await;
    assert!(matches!(unreachable, Err(CallError::Unreachable { .. })), "{unreachable:?}");

    let leaderless = FakeNode::start((0..50).map(|_| error(503, "no_leader")).collect()).await;
    let no_quorum = client_with(&[&leaderless.endpoint], short).acquire(&acquire(Wait::No)).await;
    assert!(matches!(no_quorum, Err(CallError::NoQuorum { .. })), "{no_quorum:?}");

    let silent = FakeNode::start(vec![Step::Hang]).await;
    let unknown = client_with(&[&silent.endpoint], short).acquire(&acquire(Wait::No)).await;
    let Err(CallError::OutcomeUnknown { request_id: Some(request_id), .. }) = unknown else { panic!("{unknown:?}") };
    assert_eq!(silent.asked()[0].body["request_id"], *request_id);
}

#[tokio::test]
async fn the_last_try_is_heard_out_so_that_a_node_without_a_leader_can_say_that_nothing_was_changed() {
    let said = || error_after(Duration::from_secs(2), 503, "no_leader");
    let node = FakeNode::start(vec![said(), said(), said()]).await;
    let asked = client_with(&[&node.endpoint], Duration::from_secs(3)).acquire(&acquire(Wait::No)).await;
    assert!(matches!(asked, Err(CallError::NoQuorum { .. })), "{asked:?}");
    assert_eq!(node.asked().len(), 2, "none begins after the time is over");
}

#[tokio::test]
async fn a_change_that_is_asked_for_again_waits_for_what_is_left_of_its_wait() {
    let done = r#"{"membership":"1-5","changed":true,"leader":1}"#;
    let late = error_after(Duration::from_secs(1), 503, "no_leader");
    let node = FakeNode::start(vec![late, say(200, done)]).await;
    let terms = MemberTerms { wait: Duration::from_secs(20), ..MemberTerms::default() };
    client(&[&node.endpoint]).change_members(&MemberChange::Promote(2), &terms).await.unwrap();
    let waits: Vec<u64> = node.asked().iter().map(|asked| asked.body["wait_ms"].as_u64().unwrap()).collect();
    assert!(waits.len() == 2 && waits[0] <= 20_000 && waits[1] + 1_000 <= waits[0], "{waits:?}");
}

#[tokio::test]
async fn a_wrong_request_is_not_repeated() {
    let node = FakeNode::start(vec![error(400, "invalid_ttl")]).await;
    let refused = client(&[&node.endpoint]).acquire(&acquire(Wait::No)).await;
    assert!(matches!(&refused, Err(CallError::BadRequest(refusal)) if refusal.status == 400), "{refused:?}");
    assert_eq!(node.asked().len(), 1);
}

#[tokio::test]
async fn what_is_no_node_is_named() {
    let node = FakeNode::start(vec![say(404, "<html>")]).await;
    let odd = client(&[&node.endpoint]).get("l", Freshness::Linearizable).await;
    assert!(matches!(odd, Err(CallError::NotUnderstood { .. })), "{odd:?}");
}

#[tokio::test]
async fn a_read_of_a_free_lock_is_an_outcome_and_its_name_arrives_whole() {
    let node = FakeNode::start(vec![error(404, "not_held")]).await;
    let reply = client(&[&node.endpoint]).get("a/../b c\n", Freshness::Linearizable).await.unwrap();
    assert_eq!(reply.outcome, GetOutcome::NotHeld);
    assert_eq!(node.asked()[0].target, "/v1/locks/get?name=a%2F..%2Fb%20c%0A&consistency=linearizable");
}

#[tokio::test]
async fn a_client_goes_on_with_no_other_cluster_than_the_first() {
    let home = FakeNode::start(vec![Step::SayFrom("one", GRANT.to_owned()), Step::HangUp]).await;
    let away = FakeNode::start(vec![Step::SayFrom("two", GRANT.to_owned())]).await;
    let client = client(&[&home.endpoint, &away.endpoint]);
    client.acquire(&acquire(Wait::No)).await.unwrap();
    let refused = client.acquire(&acquire(Wait::No)).await.unwrap_err();
    let (expected, found) = ("one".to_owned(), "two".to_owned());
    assert_eq!(refused, CallError::OtherCluster { endpoint: away.endpoint.to_string(), expected, found });
    assert_eq!(home.asked()[0].cluster, None, "nothing is known before the first answer");
    assert_eq!(away.asked()[0].cluster.as_deref(), Some("one"), "a node of another cluster can refuse before it acts");
}

#[tokio::test]
async fn a_wait_that_was_cut_goes_on_with_no_other_cluster_than_the_one_it_began_in() {
    let home = FakeNode::start_in("one", vec![Step::HangUp]).await;
    let away = FakeNode::start_in("two", vec![Step::SayFrom("two", GRANT.to_owned())]).await;
    let wait = acquire(Wait::UpTo(Duration::from_secs(20)));
    let refused = client(&[&home.endpoint, &away.endpoint]).acquire(&wait).await.unwrap_err();
    let (expected, found) = ("one".to_owned(), "two".to_owned());
    assert_eq!(refused, CallError::OtherCluster { endpoint: away.endpoint.to_string(), expected, found });
    assert_eq!(home.asked()[0].cluster.as_deref(), Some("one"));
    assert!(away.asked().iter().all(|asked| asked.cluster.as_deref() == Some("one")), "it can refuse before it acts");
}

#[tokio::test]
async fn only_what_may_wait_asks_for_the_cluster_first_and_only_once() {
    let node = FakeNode::start_in("one", vec![say(409, HELD), say(409, HELD), say(409, HELD)]).await;
    let at_once = client(&[&node.endpoint]);
    at_once.acquire(&acquire(Wait::No)).await.unwrap();
    assert_eq!((node.asked_who(), node.asked().len()), (0, 1), "one request to one node");
    let waits = client(&[&node.endpoint]);
    for _ in 0..2 {
        waits.acquire(&acquire(Wait::UpTo(Duration::from_secs(1)))).await.unwrap();
    }
    assert_eq!((node.asked_who(), node.asked().len()), (1, 3));
}

#[tokio::test]
async fn a_wait_does_not_begin_at_a_node_that_answers_nothing() {
    let silent = FakeNode::start_hanging().await;
    let node = FakeNode::start_in("one", vec![say(200, GRANT)]).await;
    let wait = acquire(Wait::UpTo(Duration::from_mins(1)));
    client(&[&silent.endpoint, &node.endpoint]).acquire(&wait).await.unwrap();
    assert_eq!((silent.asked().len(), node.asked().len()), (0, 1));
}

#[tokio::test]
async fn what_is_no_node_is_passed_over() {
    for (status, body) in [(404, "<html>"), (200, "<html>"), (200, r#"{"ok":true}"#), (302, "")] {
        let odd = FakeNode::start(vec![say(status, body)]).await;
        let node = FakeNode::start(vec![error(404, "not_held")]).await;
        let reply = client(&[&odd.endpoint, &node.endpoint]).get("l", Freshness::Linearizable).await.unwrap();
        assert_eq!((reply.outcome, odd.asked().len()), (GetOutcome::NotHeld, 1), "{status} {body}");
    }
}

#[tokio::test]
async fn what_is_no_node_is_named_even_if_nobody_answers_at_the_other_endpoints() {
    let odd = FakeNode::start((0..50).map(|_| say(404, "<html>")).collect()).await;
    let dead = nobody().await;
    let asked = client_with(&[&odd.endpoint, &dead], Duration::from_millis(200)).get("l", Freshness::Stale).await;
    let Err(CallError::NotUnderstood { endpoint, .. }) = asked else { panic!("{asked:?}") };
    assert_eq!(endpoint, odd.endpoint.to_string());
}
