//! The bound on connections.

use std::time::Duration;

use lockstead_server::ServerConfig;

use crate::fake_node::{Script, grant};
use crate::wire::{Server, acquire};

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn at_the_bound_the_longest_idle_connection_makes_room_and_waits_are_untouched() {
    let config = ServerConfig { connections_max: 2, ..ServerConfig::default() };
    let wait = Script::After(Duration::from_mins(1), grant(1));
    let mut server = Server::start_with(vec![wait], config).await;
    let mut waiting = server.connect().await;
    waiting.send(&acquire(r#"{"name":"a","wait_ms":300000}"#)).await;
    server.submitted().await;
    for _ in 0..5 {
        let mut silent = server.connect().await;
        let mut next = server.connect().await;
        next.send(LIVEZ).await;
        assert_eq!(next.answer().await.status, 200);
        silent.closed().await;
    }
    assert_eq!(waiting.answer().await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn while_all_connections_wait_a_new_one_is_served_when_one_of_them_is_done() {
    let config = ServerConfig { connections_max: 1, ..ServerConfig::default() };
    let wait = Script::After(Duration::from_mins(1), grant(1));
    let mut server = Server::start_with(vec![wait], config).await;
    let start = tokio::time::Instant::now();
    let mut waiting = server.connect().await;
    waiting.send(&acquire(r#"{"name":"a","wait_ms":300000}"#)).await;
    server.submitted().await;
    let mut next = server.connect().await;
    next.send(LIVEZ).await;
    assert_eq!(next.answer().await.status, 200);
    assert!(start.elapsed() >= Duration::from_mins(1));
    assert_eq!(waiting.answer().await.status, 200);
}

#[tokio::test]
async fn waiters_lock_out_neither_holders_nor_probes() {
    let config = ServerConfig { connections_max: 8, ..ServerConfig::default() };
    let mut server = Server::start_with((0..6).map(|_| Script::Never).collect(), config).await;
    let mut waiters = Vec::new();
    for _ in 0..6 {
        let mut waiter = server.connect().await;
        waiter.send(&acquire(r#"{"name":"a","wait_ms":300000}"#)).await;
        server.submitted().await;
        waiters.push(waiter);
    }
    let mut holder = server.connect().await;
    for _ in 0..3 {
        let refused = server.post("/v1/locks/acquire", r#"{"name":"a","wait_ms":1000}"#).await;
        assert_eq!((refused.status, refused.code()), (503, "overloaded".to_owned()));
    }
    holder.send(LIVEZ).await;
    assert_eq!(holder.answer().await.status, 200, "a connection between two renewals was not cut for a waiter");
    assert_eq!(server.get("/readyz").await.status, 200);
    drop(waiters);
}
