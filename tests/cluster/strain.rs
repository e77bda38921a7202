//! Requests that are too large or too deep, and a node that runs out of descriptors.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;

use crate::harness::api::Api;
use crate::harness::clock::{NOISE, eventually, now, pause_until, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::http::Conn;
use crate::harness::locker::{insist, take};
use crate::harness::scale::scaled;

const CHUNKED: &[u8] = b"POST /v1/locks/acquire HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
    transfer-encoding: chunked\r\n\r\n";
const CHUNK_BYTES: usize = 64 * 1_024;

/// Sends chunk after chunk; how many bytes went out until the server had enough, and its answer's status.
fn flood(api: Api, bytes_max: u64) -> (u64, Option<u16>) {
    let mut conn = Conn::open(api.address).expect("a connection");
    conn.send(CHUNKED).expect("the head goes out");
    let mut chunk = format!("{CHUNK_BYTES:x}\r\n").into_bytes();
    chunk.resize(chunk.len() + CHUNK_BYTES, b' ');
    chunk.extend_from_slice(b"\r\n");
    let mut sent = 0;
    while sent < bytes_max {
        if conn.has_bytes() || conn.send(&chunk).is_err() {
            break;
        }
        sent += u64::try_from(chunk.len()).expect("a length");
    }
    match conn.answer(secs(5)) {
        Ok(answer) => (sent, Some(answer.status)),
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::TimedOut, "no answer after {sent} bytes");
            (sent, None)
        }
    }
}

#[test]
fn an_endless_body_is_refused_without_being_buffered() {
    let cluster = Cluster::start(1);
    let api = cluster.api(1);
    take(&api, "warm", secs(1));
    let before_kib = cluster.nodes().next().unwrap().resident_kib();
    let mib = scaled(64, 8_192);
    let mut refused = 0;
    for _ in 0..4 {
        let (sent, status) = flood(api, mib * 1_024 * 1_024);
        assert!(status.is_none() || status == Some(413), "{status:?} after {sent} bytes");
        refused += u32::from(status == Some(413));
        assert!(sent <= 40 * 1_024 * 1_024, "{sent} bytes were taken");
    }
    assert!(refused >= 3, "the answer must be seen before the connection ends: {refused} of 4");
    let after_kib = cluster.nodes().next().unwrap().resident_kib();
    assert!(after_kib <= before_kib + 32 * 1_024, "{before_kib} KiB, then {after_kib} KiB");
    cluster.must_work();
}

#[test]
fn what_is_too_large_is_413_and_what_is_too_deep_is_400() {
    let cluster = Cluster::start(3);
    for api in cluster.apis() {
        let large = json!({"name": "L", "metadata": {"k": "v".repeat(1_024 * 1_024)}}).to_string();
        let mut conn = Conn::open(api.address).unwrap();
        let bytes = crate::harness::http::request("POST", "/v1/locks/acquire", Some(large.as_bytes()));
        // The server may have answered before the last byte: then the rest is not taken any more.
        let _refused_meanwhile = conn.send(&bytes);
        conn.answer(secs(7)).unwrap().must_be(413, "too_large");
        let metadata = json!({"name": "L", "metadata": {"k": "v".repeat(4_097)}});
        api.acquire(&metadata).unwrap().must_be(400, "invalid_metadata");
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
            for body in [deep.clone(), format!(r#"{{"name":"L","metadata":{deep}}}"#)] {
                let answer = api.call("POST", "/v1/locks/acquire", Some(body.as_bytes()), secs(0)).unwrap();
                assert_eq!(answer.status, 400, "{answer:?}");
            }
        }
        api.get("L").unwrap().must_be(404, "not_held");
    }
    cluster.must_work();
}

#[test]
fn what_is_no_such_path_method_or_media_type_is_said_so() {
    let cluster = Cluster::start(1);
    let api = cluster.api(1);
    api.call("GET", "/v1/locks", None, secs(0)).unwrap().must_be(404, "not_found");
    api.call("GET", "/v1/locks/acquire", None, secs(0)).unwrap().must_be(405, "method_not_allowed");
    api.call("DELETE", "/v1/locks/get", None, secs(0)).unwrap().must_be(405, "method_not_allowed");
    let mut conn = Conn::open(api.address).unwrap();
    let bare = b"POST /v1/locks/acquire HTTP/1.1\r\nhost: h\r\ncontent-length: 12\r\n\r\n{\"name\":\"L\"}";
    let answer = conn.call(bare, secs(5)).unwrap().must_be(415, "unsupported_media_type");
    assert!(answer.text.contains("-H"), "it shows the flag of curl: {}", answer.text);
}

#[test]
fn a_node_without_descriptors_does_not_spin_and_recovers_alone() {
    let limited = 2;
    let cluster = Setup::of(3).alone().with_descriptors(limited, 256).start();
    let api = cluster.api(limited);
    let leader = cluster.leader();
    let term = cluster.api(leader).cluster().unwrap().number("term");
    let held = take(&api, "L", secs(60));
    let flood: Vec<Conn> = (0..600).filter_map(|_| Conn::open(api.address).ok()).collect();
    assert!(flood.len() > 256, "the case needs more sockets than descriptors: {}", flood.len());
    let node = cluster.nodes().find(|node| node.id == limited).unwrap();
    let (before, begin) = (node.cpu_time(), now());
    pause_until(begin + secs(3));
    let spent = node.cpu_time().saturating_sub(before);
    assert!(spent <= begin.elapsed() / 3, "it spins: {spent:?} of processor time in {:?}", begin.elapsed());
    for other in cluster.apis_without(limited) {
        let granted = take(&other, &format!("beside {}", other.address), secs(5));
        let took = granted.received.duration_since(granted.sent);
        assert!(took <= NOISE, "the others answer in {took:?}");
    }
    let view = cluster.api(leader).cluster().unwrap();
    assert_eq!((view.body["leader"].as_u64(), view.number("term")), (Some(leader), term), "peers were cut: {view:?}");
    drop(flood);
    insist(&[api.patient_for(secs(2))], secs(10), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
    eventually("it is ready again", secs(10), || api.is_ready().then_some(()));
}

#[test]
fn more_connections_than_there_is_room_for_are_served_in_turn() {
    let cluster = Setup::of(1).alone().with_descriptors(1, 256).start();
    let api = cluster.api(1);
    let _idle: Vec<Conn> = (0..400).filter_map(|_| Conn::open(api.address).ok()).collect();
    let begin = now();
    for at in 0..20 {
        insist(&[api], secs(12), |api| api.acquire(&json!({"name": format!("lock {at}")}))).must_be_ok();
    }
    let took: Duration = begin.elapsed();
    assert!(took <= secs(12) + NOISE, "{took:?}");
}
