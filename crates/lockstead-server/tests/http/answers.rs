//! What each outcome looks like.

use lockstead_core::{Fence, HeldBy, LockView, Outcome, OwnerName, Renewal, Ttl, WaiterView};
use lockstead_raft::{LeaderView, Reply, SubmitError};

use crate::fake_node::{Script, answer, grant, holder};
use crate::wire::Server;

const HOLDER: &str = r#"{"fence":41,"owner":"ann","mode":"exclusive","acquired_at":"2024-02-29T12:34:56.007Z","expires_in_ms":1234,"metadata":{"host":"h1"}}"#;
const TOKEN: &str = "abababababababababababababababab";

async fn check(path: &str, body: &str, script: Script, status: u16, expected: &str) {
    let server = Server::start(vec![script]).await;
    let answer = server.post(path, body).await;
    assert_eq!((answer.status, answer.body.as_str()), (status, expected), "{path}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("lockstead-leader"), Some("http://10.0.0.2:7800"));
    assert_eq!(answer.header("lockstead-cluster"), Some("00000000000000000000000000abcdef"));
}

#[tokio::test]
async fn a_grant_shows_token_fence_and_what_is_left() {
    let expected = format!(
        r#"{{"name":"a/b","token":"{TOKEN}","fence":41,"ttl_ms":30000,"expires_in_ms":29000,"waited_ms":3,"renewed":false}}"#
    );
    check("/v1/locks/acquire", r#"{"name":"a/b"}"#, answer(grant(29_000)), 200, &expected).await;
}

#[tokio::test]
async fn a_release_and_a_renewal_name_the_lock() {
    let body = format!(r#"{{"name":"a","token":"{TOKEN}"}}"#);
    check("/v1/locks/release", &body, answer(Outcome::Released), 200, r#"{"name":"a"}"#).await;
    let renewal = Outcome::Renewed(Renewal { fence: Fence(41), ttl: Ttl::DEFAULT, left_ms: 29_999 });
    let expected = r#"{"name":"a","fence":41,"ttl_ms":30000,"expires_in_ms":29999}"#;
    check("/v1/locks/renew", &body, answer(renewal), 200, expected).await;
}

#[tokio::test]
async fn a_held_lock_shows_holders_and_queue_but_no_token() {
    let held = Outcome::Held(HeldBy { holders: vec![holder()], queue_len: 2, hold_off_ms: 0 });
    let expected = format!(
        r#"{{"error":{{"code":"held","message":"the lock is held, or others wait for it","holders":[{HOLDER}],"queue_len":2}}}}"#
    );
    check("/v1/locks/acquire", r#"{"name":"a"}"#, answer(held), 409, &expected).await;
}

#[tokio::test]
async fn each_refusal_has_its_status_and_code() {
    let limit = Outcome::LimitExceeded { limit: 10, current: 10 };
    for (outcome, status, code) in [
        (Outcome::NotHolder, 409, "not_holder"),
        (limit, 429, "limit_exceeded"),
        (Outcome::RequestIdReused, 400, "request_id_reused"),
        (Outcome::TooLarge, 413, "too_large"),
        (Outcome::NotHeld, 404, "not_held"),
    ] {
        let server = Server::start(vec![answer(outcome)]).await;
        let refused = server.post("/v1/locks/acquire", r#"{"name":"a"}"#).await;
        assert_eq!((refused.status, refused.code().as_str()), (status, code));
        if code == "limit_exceeded" {
            assert!(refused.body.contains(r#""limit":10,"current":10"#), "{}", refused.body);
        }
    }
}

#[tokio::test]
async fn what_could_not_be_found_out_is_503_with_a_time_to_retry() {
    for (error, code) in [
        (SubmitError::NoLeader, "no_leader"),
        (SubmitError::OutcomeUnknown, "outcome_unknown"),
        (SubmitError::CatchingUp, "catching_up"),
    ] {
        let server = Server::start(vec![Script::Answer(Err(error))]).await;
        let failed = server.post("/v1/locks/acquire", r#"{"name":"a"}"#).await;
        assert_eq!((failed.status, failed.code().as_str()), (503, code));
        assert_eq!(failed.header("retry-after"), Some("1"));
        assert!(failed.body.contains("\"retry_after_ms\":"), "{}", failed.body);
    }
}

#[tokio::test]
async fn a_hold_without_time_left_is_no_hold_to_tell_of() {
    let over = Outcome::Renewed(Renewal { fence: Fence(41), ttl: Ttl::DEFAULT, left_ms: 0 });
    for outcome in [grant(0), over] {
        let server = Server::start(vec![answer(outcome)]).await;
        let failed = server.post("/v1/locks/acquire", r#"{"name":"a"}"#).await;
        assert_eq!(failed.code(), "outcome_unknown");
        assert!(!failed.body.contains(TOKEN));
    }
}

#[tokio::test]
async fn a_read_shows_holders_and_waiters_and_says_when_it_is_stale() {
    let waiters = vec![
        WaiterView { owner: OwnerName::parse("bob").ok(), waiting_ms: 5 },
        WaiterView { owner: None, waiting_ms: 4 },
    ];
    let view = LockView { holders: vec![holder()], waiters };
    let server = Server::start(vec![answer(Outcome::Got(view.clone())), answer(Outcome::NotHeld)]).await;
    let read = server.get("/v1/locks/get?name=a%2Fb").await;
    let waiters = r#"[{"owner":"bob","waiting_ms":5},{"owner":null,"waiting_ms":4}]"#;
    let expected = format!(r#"{{"name":"a/b","holders":[{HOLDER}],"waiters":{waiters}}}"#);
    assert_eq!((read.status, read.body), (200, expected));
    assert_eq!(server.get("/v1/locks/get?name=a").await.code(), "not_held");

    assert_eq!(server.get("/v1/locks/get?name=a&consistency=stale").await.code(), "not_held");
    server.node.known.lock().unwrap().stale = Ok(Some(LockView { holders: vec![], waiters: vec![] }));
    let read = server.get("/v1/locks/get?name=a&consistency=stale").await;
    assert_eq!(read.body, r#"{"name":"a","holders":[],"waiters":[],"stale":true}"#);
    server.node.known.lock().unwrap().stale = Err(SubmitError::CatchingUp);
    assert_eq!(server.get("/v1/locks/get?name=a&consistency=stale").await.code(), "catching_up");
}

#[tokio::test]
async fn the_headers_follow_the_leader_on_errors_too() {
    let server = Server::start(vec![]).await;
    let leader_of = async |server: &Server| server.get("/nowhere").await.header("lockstead-leader").map(str::to_owned);
    assert_eq!(leader_of(&server).await.as_deref(), Some("http://10.0.0.2:7800"));
    server.node.known.lock().unwrap().leader = Some(LeaderView { node_id: 3, api: "n3:1".to_owned() });
    assert_eq!(leader_of(&server).await.as_deref(), Some("http://n3:1"));
    server.node.known.lock().unwrap().leader = None;
    server.node.known.lock().unwrap().cluster_id = None;
    let answer = server.get("/nowhere").await;
    assert_eq!((answer.header("lockstead-leader"), answer.header("lockstead-cluster")), (None, None));
}

#[tokio::test]
async fn waited_ms_is_what_the_node_says() {
    let reply = Reply { outcome: grant(1), waited_ms: 77 };
    let server = Server::start(vec![Script::Answer(Ok(reply))]).await;
    let granted = server.post("/v1/locks/acquire", r#"{"name":"a"}"#).await;
    assert!(granted.body.contains(r#""waited_ms":77"#), "{}", granted.body);
}
