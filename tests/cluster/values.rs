//! TTLs and waits: bounds and units.

use std::time::Duration;

use crate::harness::api::Api;
use crate::harness::clock::secs;
use crate::harness::cluster::Cluster;
use crate::harness::http::Answer;
use crate::harness::locker::take;

const TTL_MS_MAX: u64 = 86_400_000;

/// What stands in the body after `"ttl_ms":`, and the TTL that is granted, if any.
const TTLS: [(&str, Option<u64>); 26] = [
    ("0", Some(30_000)),
    ("-0", Some(30_000)),
    ("-1", Some(30_000)),
    ("-9223372036854775808", Some(30_000)),
    ("-99999999999999999999999999", Some(30_000)),
    ("null", Some(30_000)),
    ("100", Some(100)),
    ("86400000", Some(TTL_MS_MAX)),
    ("1", None),
    ("99", None),
    ("0.5", None),
    ("10.0", None),
    ("1e3", None),
    ("\"10\"", None),
    ("\"1000\"", None),
    ("true", None),
    ("[]", None),
    ("{}", None),
    ("1e400", None),
    ("9007199254740993", None),
    ("9223372036854775808", None),
    ("18446744073709551616", None),
    ("99999999999999999999999999", None),
    ("86400001", None),
    ("-0.5", None),
    ("-1e400", None),
];

fn post(api: &Api, path: &str, body: &str) -> Answer {
    api.call("POST", path, Some(body.as_bytes()), Duration::ZERO).expect("an answer")
}

fn must_refuse_ttl(answer: Answer) {
    let answer = answer.must_be(400, "invalid_ttl");
    let error = answer.body["error"].to_string();
    assert!(error.contains("100") && error.contains("86400000"), "it must name the range: {error}");
    assert_eq!(answer.body["error"]["field"], "ttl_ms");
}

#[test]
fn an_acquire_takes_ttls_within_bounds_and_echoes_them() {
    let cluster = Cluster::start(3);
    let api = cluster.api(2);
    for (at, (ttl_ms, granted)) in TTLS.iter().enumerate() {
        let name = format!("ttl {at}");
        let answer = post(&api, "/v1/locks/acquire", &format!(r#"{{"name":"{name}","ttl_ms":{ttl_ms}}}"#));
        if let Some(granted) = granted {
            let answer = answer.must_be_ok();
            assert_eq!(answer.number("ttl_ms"), *granted, "{ttl_ms}");
            assert!(answer.number("expires_in_ms") <= *granted, "{ttl_ms}: {answer:?}");
        } else {
            must_refuse_ttl(answer);
            api.get(&name).unwrap().must_be(404, "not_held");
        }
    }
    let missing = post(&api, "/v1/locks/acquire", r#"{"name":"no ttl"}"#).must_be_ok();
    assert_eq!(missing.number("ttl_ms"), 30_000);
}

#[test]
fn a_renewal_takes_ttls_within_bounds_and_else_changes_nothing() {
    let cluster = Cluster::start(3);
    let api = cluster.api(1);
    for (at, (ttl_ms, granted)) in TTLS.iter().enumerate() {
        let held = take(&api, &format!("ttl {at}"), secs(50));
        let body = format!(r#"{{"name":"{}","token":"{}","ttl_ms":{ttl_ms}}}"#, held.name, held.token);
        let answer = post(&api, "/v1/locks/renew", &body);
        if let Some(granted) = granted {
            assert_eq!(answer.must_be_ok().number("ttl_ms"), *granted, "{ttl_ms}");
        } else {
            must_refuse_ttl(answer);
            let seen = api.get(&held.name).unwrap().must_be_ok();
            let left_ms = seen.body["holders"][0]["expires_in_ms"].as_u64().unwrap();
            assert!((30_001..=50_000).contains(&left_ms), "{ttl_ms} changed it: {seen:?}");
        }
    }
}

#[test]
fn a_wait_out_of_bounds_is_refused_at_once() {
    let cluster = Cluster::start(1);
    let api = cluster.api(1);
    take(&api, "L", secs(60));
    for wait_ms in ["-1", "300001", "0.5", "\"10\"", "1e3", "true", "9223372036854775808"] {
        let body = format!(r#"{{"name":"L","wait_ms":{wait_ms}}}"#);
        let answer = post(&api, "/v1/locks/acquire", &body).must_be(400, "invalid_wait");
        assert!(answer.text.contains("300000"), "it must name the range: {}", answer.text);
    }
    for wait_ms in ["0", "null"] {
        let body = format!(r#"{{"name":"L","wait_ms":{wait_ms}}}"#);
        post(&api, "/v1/locks/acquire", &body).must_be(409, "held");
    }
}

#[test]
fn a_misspelt_field_is_refused_by_name() {
    let cluster = Cluster::start(1);
    let api = cluster.api(1);
    for (path, body, field) in [
        ("/v1/locks/acquire", r#"{"name":"L","ttlms":5000}"#, "ttlms"),
        ("/v1/locks/acquire", r#"{"name":"L","TTL_MS":5000}"#, "TTL_MS"),
        ("/v1/locks/release", r#"{"name":"L","token":"t","ttl_ms":1}"#, "ttl_ms"),
        ("/v1/locks/renew", r#"{"name":"L","token":"t","wait_ms":1}"#, "wait_ms"),
    ] {
        let answer = post(&api, path, body).must_be(400, "invalid_field");
        assert_eq!(answer.body["error"]["field"], field);
    }
    for body in ["", "{", "[]", "null", "\"L\"", r#"{"name":"L"} x"#, r#"{"name":"L","name":"L"}"#] {
        post(&api, "/v1/locks/acquire", body).must_be(400, "invalid_json");
    }
    api.get("L").unwrap().must_be(404, "not_held");
}
