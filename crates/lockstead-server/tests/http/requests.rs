//! What reaches the node, and what is refused before it.

use std::time::Duration;

use lockstead_core::{Op, Proof};

use crate::fake_node::{Event, answer, grant};
use crate::wire::{Server, acquire};

#[tokio::test]
async fn an_acquire_reaches_the_node_with_its_wait_and_five_seconds() {
    let mut server = Server::start(vec![answer(grant(1))]).await;
    let body = r#"{"name":"a//b/../%2F","ttl_ms":-1,"wait_ms":300000,"owner":"o"}"#;
    assert_eq!(server.post("/v1/locks/acquire", body).await.status, 200);
    let (Op::Acquire(acquire), time_left) = server.submitted().await else { panic!("an acquire was sent") };
    assert_eq!((acquire.lock.name(), acquire.lock.namespace()), ("a//b/../%2F", "default"));
    assert_eq!((acquire.ttl.as_ms(), acquire.wait_ms), (30_000, 300_000));
    assert_eq!(time_left, Duration::from_secs(305));
}

#[tokio::test]
async fn release_renew_and_get_reach_the_node_with_five_seconds() {
    let mut server = Server::start((0..3).map(|_| answer(lockstead_core::Outcome::NotHolder)).collect()).await;
    server.post("/v1/locks/release", r#"{"name":"a","token":"nonsense"}"#).await;
    let (Op::Release(release), time_left) = server.submitted().await else { panic!("a release was sent") };
    assert_eq!((release.token, time_left), (None, Duration::from_secs(5)));
    server.post("/v1/locks/renew", r#"{"name":"a","owner":"o"}"#).await;
    let (Op::Renew(renew), time_left) = server.submitted().await else { panic!("a renewal was sent") };
    assert!(matches!(renew.proof, Proof::Owner(_)));
    assert_eq!(time_left, Duration::from_secs(5));
    server.get("/v1/locks/get?name=%F0%9F%94%92+%2B%00").await;
    let (Op::Get(get), time_left) = server.submitted().await else { panic!("a get was sent") };
    assert_eq!((get.lock.name(), time_left), ("🔒 +\0", Duration::from_secs(5)));
}

#[tokio::test]
async fn what_is_not_understood_never_reaches_the_node() {
    let mut server = Server::start(vec![]).await;
    for (path, body, code) in [
        ("/v1/locks/acquire", "{", "invalid_json"),
        ("/v1/locks/acquire", r#"{"name":""}"#, "invalid_name"),
        ("/v1/locks/acquire", r#"{"name":"a","ttl":1}"#, "invalid_field"),
        ("/v1/locks/acquire", r#"{"name":"a","ttl_ms":1e3}"#, "invalid_ttl"),
        ("/v1/locks/acquire?ttl_ms=5", r#"{"name":"a"}"#, "invalid_field"),
        ("/v1/locks/release", r#"{"name":"a"}"#, "invalid_token"),
        ("/v1/locks/renew", r#"{"name":"a","owner":"o","ttl_ms":99}"#, "invalid_ttl"),
    ] {
        assert_eq!(server.post(path, body).await.code(), code, "{path} {body}");
    }
    for (target, code) in [
        ("/v1/locks/get", "invalid_name"),
        ("/v1/locks/get?name=%F0", "invalid_name"),
        ("/v1/locks/get?name=a&x=1", "invalid_field"),
        ("/v1/locks/get?name=a&consistency=strong", "invalid_consistency"),
        ("/v1/admin/cluster?x=1", "invalid_field"),
    ] {
        assert_eq!(server.get(target).await.code(), code, "{target}");
    }
    assert!(server.events.try_recv().is_err());
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_errors_of_the_same_shape() {
    let server = Server::start(vec![]).await;
    for target in ["/", "/v1/locks/acquire/", "/v1/locks", "//v1/locks/get", "/v1/locks/list", "/LIVEZ"] {
        assert_eq!(server.get(target).await.code(), "not_found", "{target}");
    }
    let refused = server.get("/v1/locks/acquire").await;
    assert_eq!((refused.code().as_str(), refused.header("allow")), ("method_not_allowed", Some("POST")));
    let refused = server.post("/v1/locks/get?name=a", "{}").await;
    assert_eq!((refused.code().as_str(), refused.header("allow")), ("method_not_allowed", Some("GET,HEAD")));
}

#[tokio::test]
async fn a_body_must_be_declared_as_json() {
    let mut server = Server::start((0..3).map(|_| answer(grant(1))).collect()).await;
    let send = async |server: &Server, header: &str| {
        let mut client = server.connect().await;
        let head = format!("POST /v1/locks/acquire HTTP/1.1\r\nhost: x\r\n{header}content-length: 12\r\n\r\n");
        client.send(&(head + r#"{"name":"a"}"#)).await;
        client.answer().await
    };
    for header in ["", "content-type: application/x-www-form-urlencoded\r\n", "content-type: application/jsonx\r\n"] {
        let refused = send(&server, header).await;
        assert_eq!(refused.code(), "unsupported_media_type");
        assert!(refused.body.contains("-H 'content-type: application/json'"), "{}", refused.body);
    }
    assert!(server.events.try_recv().is_err());
    for header in ["application/json", "Application/JSON; charset=utf-8", "application/json ;x"] {
        assert_eq!(send(&server, &format!("content-type: {header}\r\n")).await.status, 200, "{header}");
    }
}

#[tokio::test]
async fn a_connection_serves_many_requests_pipelined_ones_in_order() {
    let mut server = Server::start(vec![answer(grant(1)), answer(lockstead_core::Outcome::Released)]).await;
    let mut client = server.connect().await;
    let release = crate::wire::post("/v1/locks/release", r#"{"name":"a","token":""}"#);
    client.send(&(acquire(r#"{"name":"a"}"#) + &release)).await;
    assert!(client.answer().await.body.contains("\"fence\":41"));
    assert_eq!(client.answer().await.body, r#"{"name":"a"}"#);
    assert!(matches!(server.events.recv().await, Some(Event::Submitted(Op::Acquire(_), _))));
}
