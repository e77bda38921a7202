//! Clients that are slow: their connections end, nobody else's do.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use crate::harness::api::Api;
use crate::harness::clock::{NOISE, eventually, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{client, done};
use crate::harness::http::{Answer, Conn};
use crate::harness::locker::{Held, take, waiting_body};
use crate::harness::scale::scaled_len;

const HEAD_WITHIN: Duration = secs(10);
const BODY_WITHIN: Duration = secs(30);

/// The end of a connection: a 408, or a close. Anything else is the test's end.
fn ended(answer: io::Result<Answer>) -> Option<Instant> {
    match answer {
        Ok(answer) => {
            assert_eq!(answer.status, 408, "{answer:?}");
            Some(answer.received)
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => None,
        Err(_closed) => Some(now()),
    }
}

/// Sends one byte a second until the connection ends; how long that took.
fn drip(api: Api, begin: &[u8], byte: u8, within: Duration) -> Duration {
    let started = now();
    let mut conn = Conn::open(api.address).expect("a connection");
    conn.send(begin).expect("the begin goes out");
    while started.elapsed() < within {
        if let Some(at) = ended(conn.answer(secs(1))) {
            return at.duration_since(started);
        }
        if conn.send(&[byte]).is_err() {
            return started.elapsed();
        }
    }
    panic!("the connection still stands after {within:?}");
}

#[test]
fn slow_heads_and_bodies_end_in_time_and_long_waits_are_not_cut() {
    let cluster = Cluster::start(3);
    let api = cluster.api(cluster.leader());
    let held = take(&api, "L", secs(90));
    let stalled_body = b"POST /v1/locks/acquire HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
        content-length: 1000\r\n\r\n{";
    let waiter = client(move || {
        // Longer than any of the bounds.
        let body = waiting_body("L", secs(5), secs(120));
        Held::from(&api.acquire(&body).expect("an answer").must_be_ok())
    });
    let long_head = client(move || drip(api, b"GET /livez HTTP/1.1\r\nx: ", b'x', HEAD_WITHIN * 2));
    let no_head = client(move || drip(api, b"", b'G', HEAD_WITHIN * 2));
    let long_body = client(move || drip(api, stalled_body, b' ', BODY_WITHIN * 2));
    let idle = client(move || {
        let started = now();
        let mut conn = Conn::open(api.address).expect("a connection");
        let at = ended(conn.answer(HEAD_WITHIN * 2)).expect("it ends");
        at.duration_since(started)
    });
    let second_head = client(move || {
        let mut conn = Conn::open(api.address).expect("a connection");
        conn.call(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n", secs(5)).expect("an answer").must_be_ok();
        conn.send(b"GET /livez").expect("it goes out");
        let started = now();
        let at = ended(conn.answer(HEAD_WITHIN * 2)).expect("it ends");
        at.duration_since(started)
    });
    for (what, ended) in [("head", long_head), ("first byte", no_head), ("idle", idle), ("second", second_head)] {
        let took = done(ended);
        assert!(took <= HEAD_WITHIN + NOISE && took >= secs(5), "{what}: {took:?}");
    }
    let took = done(long_body);
    assert!(took <= BODY_WITHIN + NOISE && took >= HEAD_WITHIN, "body: {took:?}");
    pause_until(held.received + BODY_WITHIN + secs(2));
    assert_eq!(cluster.waiting(), 1, "the long wait was cut");
    api.release("L", &held.token).unwrap().must_be_ok();
    assert!(done(waiter).fence > held.fence);
}

#[test]
fn idle_sockets_disturb_nobody_and_are_closed() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let api = cluster.api(leader);
    let opened = now();
    let sockets: Vec<Conn> = (0..scaled_len(800, 5_000)).map(|_| Conn::open(api.address).unwrap()).collect();
    let open = api.metric("http_connections").expect("a gauge of connections");
    assert!(open >= 1.0, "the case needs sockets: {open}");
    for at in 0..20 {
        let held = take(&api, &format!("lock {at}"), secs(20));
        let took = held.received.duration_since(held.sent);
        assert!(took <= NOISE, "an acquire took {took:?} beside {} idle sockets", sockets.len());
    }
    eventually("the idle sockets are closed by the server", HEAD_WITHIN + secs(10), || {
        (api.metric("http_connections")? <= 2.0).then_some(())
    });
    assert!(opened.elapsed() >= secs(5), "they were closed while they might still have sent a head");
    cluster.must_work();
}
