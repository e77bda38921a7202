//! Slow clients, in paused time: the clock jumps to the next timer whenever nothing else is to be done.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::fake_node::{Script, answer, grant};
use crate::wire::{Client, Server, acquire};

const SECOND: Duration = Duration::from_secs(1);

async fn check_closed_after(client: &mut Client, since: Instant, expected: Duration) {
    client.closed().await;
    let took = since.elapsed();
    assert!(took >= expected && took < expected + SECOND, "closed after {took:?}, not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_closed_after_ten_seconds() {
    let server = Server::start(vec![]).await;
    let mut client = server.connect().await;
    check_closed_after(&mut client, Instant::now(), 10 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_is_cut_after_ten_seconds() {
    let server = Server::start(vec![]).await;
    let mut client = server.connect().await;
    let start = Instant::now();
    for byte in ["G", "E", "T", " ", "/", "l", "i", "v", "e"] {
        client.send(byte).await;
        sleep(SECOND).await;
    }
    check_closed_after(&mut client, start, 10 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_head_has_ten_seconds_from_its_first_byte() {
    let server = Server::start(vec![]).await;
    let mut client = server.connect().await;
    client.send("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 200);
    sleep(40 * SECOND).await;
    let start = Instant::now();
    client.send("GET /li").await;
    check_closed_after(&mut client, start, 10 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_seventy_five_seconds() {
    let server = Server::start(vec![]).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        client.send("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(client.answer().await.status, 200);
        sleep(70 * SECOND).await;
    }
    check_closed_after(&mut client, Instant::now(), 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_answered_408_after_thirty_seconds() {
    let mut server = Server::start(vec![]).await;
    let mut client = server.connect().await;
    let start = Instant::now();
    client
        .send("POST /v1/locks/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"na")
        .await;
    let late = client.answer().await;
    assert_eq!((late.code().as_str(), late.header("connection")), ("request_timeout", Some("close")));
    assert_eq!(start.elapsed().as_secs(), 30);
    assert!(server.events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_cut_by_no_timer_and_the_connection_lives_on() {
    let server = Server::start(vec![Script::After(300 * SECOND, grant(1)), answer(grant(1))]).await;
    let mut client = server.connect().await;
    client.send(&acquire(r#"{"name":"a","wait_ms":300000}"#)).await;
    assert!(client.answer().await.body.contains("\"waited_ms\":300000"));
    client.send(&acquire(r#"{"name":"a"}"#)).await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_requests_in_flight_answer() {
    let mut server = Server::start(vec![Script::After(3 * SECOND, grant(1))]).await;
    let (mut idle, mut waiting) = (server.connect().await, server.connect().await);
    idle.send("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.status, 200);
    waiting.send(&acquire(r#"{"name":"a","wait_ms":60000}"#)).await;
    server.submitted().await;
    server.shutdown.cancel();
    idle.closed().await;
    let granted = waiting.answer().await;
    assert_eq!((granted.status, granted.header("connection")), (200, Some("close")));
    waiting.closed().await;
    server.serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_grace_of_a_shutdown_is_answered_and_withdrawn() {
    let mut server = Server::start(vec![Script::Never]).await;
    let mut waiting = server.connect().await;
    waiting.send(&acquire(r#"{"name":"a","wait_ms":300000}"#)).await;
    server.submitted().await;
    let start = Instant::now();
    server.shutdown.cancel();
    let cut = waiting.answer().await;
    assert_eq!((cut.code().as_str(), cut.header("retry-after")), ("outcome_unknown", Some("1")));
    assert_eq!(start.elapsed().as_secs(), 5);
    server.serving.await.unwrap().unwrap();
    assert!(matches!(server.events.recv().await, Some(crate::fake_node::Event::Withdrawn)));
}
