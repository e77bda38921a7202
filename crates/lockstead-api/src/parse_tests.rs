//! Scripts: a body and what becomes of it.

use super::*;

/// Names that have gone wrong in the field.
pub(crate) const FIELD_NAMES: [&str; 26] = [
    "a/b",
    "a%2Fb",
    "/a",
    "a//b",
    ".",
    "..",
    "a/../b",
    "%",
    "%zz",
    "\0",
    "a\0b",
    "#?&+",
    " ",
    "a b",
    "\n",
    "\r\n",
    "\u{202e}",
    "é",
    "e\u{301}",
    "🔒",
    "list",
    "watch",
    "\"",
    "\\",
    "\u{feff}",
    "\u{10ffff}",
];

const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

/// The code and field of the error, `ok` without one.
fn outcome<T>(parsed: Result<T, ErrorBody>) -> String {
    match parsed {
        Ok(_) => "ok".to_owned(),
        Err(body) => format!("{} {}", body.error.code, body.error.field.unwrap_or_default()).trim_end().to_owned(),
    }
}

fn check_acquire(body: &str, expected: &str) {
    assert_eq!(outcome(parse_acquire(body.as_bytes(), Ttl::MAX_MS_DEFAULT)), expected, "{body}");
}

fn check_release(body: &str, expected: &str) {
    assert_eq!(outcome(parse_release(body.as_bytes())), expected, "{body}");
}

fn check_renew(body: &str, expected: &str) {
    assert_eq!(outcome(parse_renew(body.as_bytes(), Ttl::MAX_MS_DEFAULT)), expected, "{body}");
}

/// The TTL that acquire and renew make of a `ttl_ms`, `None` for `invalid_ttl`. Both must agree.
fn ttl_of(ttl_ms: &str) -> Option<u64> {
    let acquire = parse_acquire(format!(r#"{{"name":"a","ttl_ms":{ttl_ms}}}"#).as_bytes(), Ttl::MAX_MS_DEFAULT);
    let renew = parse_renew(format!(r#"{{"name":"a","owner":"o","ttl_ms":{ttl_ms}}}"#).as_bytes(), Ttl::MAX_MS_DEFAULT);
    let acquired = acquire.map(|acquire| acquire.ttl.as_ms());
    assert_eq!(acquired, renew.map(|renew| renew.ttl.as_ms()), "{ttl_ms}");
    match acquired {
        Ok(ms) => Some(ms),
        Err(body) => {
            assert_eq!(body.error.code, ErrorCode::InvalidTtl, "{ttl_ms}");
            assert_eq!(body.error.field.as_deref(), Some("ttl_ms"));
            assert!(body.error.allowed.unwrap().starts_with("an integer from 100 to 86400000"));
            None
        }
    }
}

#[test]
fn zero_negative_and_missing_ttls_are_thirty_seconds() {
    for ttl_ms in ["0", "-0", "-1", "null", "-9223372036854775808", "-9223372036854775809"] {
        assert_eq!(ttl_of(ttl_ms), Some(30_000), "{ttl_ms}");
    }
    assert_eq!(parse_acquire(br#"{"name":"a"}"#, 1_000).unwrap().ttl, Ttl::DEFAULT);
    assert_eq!(parse_renew(br#"{"name":"a","owner":"o"}"#, 1_000).unwrap().ttl, Ttl::DEFAULT);
}

#[test]
fn a_ttl_within_the_range_is_taken_as_it_is() {
    for ms in [100, 101, 30_000, 86_399_999, 86_400_000] {
        assert_eq!(ttl_of(&ms.to_string()), Some(ms));
    }
}

#[test]
fn a_ttl_that_is_no_integer_or_out_of_range_names_the_range() {
    let refused = [
        "1",
        "99",
        "86400001",
        "9007199254740993",
        "9223372036854775808",
        "18446744073709551616",
        "1e400",
        "-1e400",
        "0.5",
        "10.0",
        "1e3",
        "1E3",
        "-0.0",
        "-1.5",
        "\"10\"",
        "\"\"",
        "true",
        "false",
        "[]",
        "[1000]",
        "{}",
    ];
    for ttl_ms in refused {
        assert_eq!(ttl_of(ttl_ms), None, "{ttl_ms}");
    }
}

#[test]
fn the_configured_maximum_is_the_maximum() {
    let body = br#"{"name":"a","ttl_ms":1001}"#;
    assert_eq!(parse_acquire(body, 1_001).unwrap().ttl.as_ms(), 1_001);
    let error = parse_acquire(body, 1_000).unwrap_err().error;
    assert!(error.message.contains("100 to 1000,"), "{}", error.message);
}

#[test]
fn a_name_comes_out_as_it_went_in_byte_for_byte() {
    let longest = "x".repeat(1_024);
    for name in FIELD_NAMES.into_iter().chain([longest.as_str()]) {
        let body = serde_json::to_vec(&serde_json::json!({"name": name, "owner": "o"})).unwrap();
        assert_eq!(parse_renew(&body, 1_000).unwrap().lock.name(), name);
    }
    assert_eq!(parse_acquire(br#"{"name":"\u0061\/\ud83d\udd12"}"#, 1_000).unwrap().lock.name(), "a/🔒");
}

#[test]
fn a_name_that_is_none_is_refused() {
    let too_long = format!(r#"{{"name":"{}"}}"#, "x".repeat(1_025));
    let too_long_in_bytes = format!(r#"{{"name":"{}"}}"#, "é".repeat(513));
    let bodies =
        ["{}", r#"{"name":null}"#, r#"{"name":""}"#, r#"{"name":7}"#, r#"{"name":["a"]}"#, r#"{"name":"\ud800"}"#];
    for body in bodies.into_iter().chain([too_long.as_str(), too_long_in_bytes.as_str()]) {
        check_acquire(body, "invalid_name name");
        check_release(body, "invalid_name name");
        check_renew(body, "invalid_name name");
    }
}

#[test]
fn the_other_fields_of_acquire_have_their_bounds() {
    let id_max = "i".repeat(128);
    for (field, value, expected) in [
        ("wait_ms", "0", "ok"),
        ("wait_ms", "300000", "ok"),
        ("wait_ms", "null", "ok"),
        ("wait_ms", "300001", "invalid_wait wait_ms"),
        ("wait_ms", "-1", "invalid_wait wait_ms"),
        ("wait_ms", "1.0", "invalid_wait wait_ms"),
        ("wait_ms", "\"5s\"", "invalid_wait wait_ms"),
        ("wait_ms", "9223372036854775808", "invalid_wait wait_ms"),
        ("queued_ms", "0", "ok"),
        ("queued_ms", "9007199254740991", "ok"),
        ("queued_ms", "9007199254740992", "invalid_queued queued_ms"),
        ("queued_ms", "-1", "invalid_queued queued_ms"),
        ("queued_ms", "1e1", "invalid_queued queued_ms"),
        ("owner", "\"o\"", "ok"),
        ("owner", "null", "ok"),
        ("owner", "\"\"", "invalid_owner owner"),
        ("owner", "1", "invalid_owner owner"),
        ("request_id", "\"0123456789abcdef\"", "ok"),
        ("request_id", &format!("\"{id_max}\""), "ok"),
        ("request_id", &format!("\"{id_max}i\""), "invalid_request_id request_id"),
        ("request_id", "\"0123456789abcde\"", "invalid_request_id request_id"),
        ("request_id", "{}", "invalid_request_id request_id"),
        ("metadata", "{}", "ok"),
        ("metadata", r#"{"k":"v","é":"\n"}"#, "ok"),
        ("metadata", r#"{"k":1}"#, "invalid_metadata metadata"),
        ("metadata", r#"{"k":null}"#, "invalid_metadata metadata"),
        ("metadata", r#"{"k":"v","k":"v"}"#, "invalid_metadata metadata"),
        ("metadata", r#"["k"]"#, "invalid_metadata metadata"),
        ("metadata", "\"k\"", "invalid_metadata metadata"),
        ("metadata", &format!(r#"{{"k":"{}"}}"#, "v".repeat(4_095)), "ok"),
        ("metadata", &format!(r#"{{"k":"{}"}}"#, "v".repeat(4_096)), "invalid_metadata metadata"),
    ] {
        check_acquire(&format!(r#"{{"name":"a","{field}":{value}}}"#), expected);
    }
    check_acquire(&format!(r#"{{"name":"a","owner":"{}"}}"#, "o".repeat(256)), "ok");
    check_acquire(&format!(r#"{{"name":"a","owner":"{}"}}"#, "o".repeat(257)), "invalid_owner owner");
}

#[test]
fn a_full_acquire_is_read_field_by_field() {
    let body = br#" { "name" : "a", "ttl_ms": 1000, "wait_ms":2, "owner":"o", "request_id":"0123456789abcdef",
        "queued_ms":3, "metadata":{"b":"2","a":"1"} } "#;
    let expected = Acquire {
        lock: LockKey::in_default(&LockName::parse("a").unwrap()),
        ttl: Ttl::from_request(Some(1_000), 1_000).unwrap(),
        wait_ms: 2,
        queued_ms: 3,
        owner: Some(OwnerName::parse("o").unwrap()),
        request_id: Some(RequestId::parse("0123456789abcdef").unwrap()),
        metadata: Metadata::parse(vec![("a".into(), "1".into()), ("b".into(), "2".into())]).unwrap(),
    };
    assert_eq!(parse_acquire(body, 1_000), Ok(expected));
}

#[test]
fn unknown_fields_are_refused_by_name() {
    for field in ["ttl", "TTL_MS", "names", "namespace", "session", "mode", "permits", "delay_ms", "token", "", "ü"] {
        check_acquire(&format!(r#"{{"name":"a","{field}":1}}"#), format!("invalid_field {field}").trim_end());
    }
    check_release(&format!(r#"{{"name":"a","token":"{TOKEN}","owner":"o"}}"#), "invalid_field owner");
    check_renew(r#"{"name":"a","owner":"o","wait_ms":1}"#, "invalid_field wait_ms");
    let error = parse_acquire(br#"{"ttl":5,"name":1}"#, 1_000).unwrap_err().error;
    assert_eq!(error.allowed.as_deref(), Some("name, ttl_ms, wait_ms, owner, request_id, queued_ms, metadata"));
}

#[test]
fn a_field_must_not_stand_twice() {
    check_acquire(r#"{"name":"a","name":"a"}"#, "invalid_json name");
    check_acquire(r#"{"name":"a","ttl_ms":null,"ttl_ms":5000}"#, "invalid_json ttl_ms");
    check_acquire(r#"{"name":"a","n\u0061me":"b"}"#, "invalid_json name");
}

#[test]
fn a_body_that_is_not_one_json_object_is_invalid_json() {
    let bodies = [
        "",
        " ",
        "{",
        "[]",
        "null",
        "\"a\"",
        "7",
        "name=a",
        "{\"name\":\"a\"}x",
        "{\"name\":\"a\"}{}",
        "{'name':'a'}",
        "{\"name\":\"a\",}",
        "{\"name\":a}",
        "{\"name\":\"a\",\"ttl_ms\":01}",
        "{\"name\":\"a\",\"ttl_ms\":+1}",
        "{\"name\":\"a\",\"ttl_ms\":NaN}",
        "{\"name\":\"a\nb\"}",
        "{\"name\":\"\\x\"}",
        "{\"ttl\":1",
        "\u{feff}{\"name\":\"a\"}",
    ];
    for body in bodies {
        check_acquire(body, "invalid_json");
        check_release(body, "invalid_json");
        check_renew(body, "invalid_json");
    }
}

#[test]
fn broken_json_is_shown_by_its_position() {
    let error = parse_acquire(b"{\n  \"name\": a}", 1_000).unwrap_err().error;
    assert!(error.message.contains("line 2 column 11"), "{}", error.message);
}

#[test]
fn bytes_that_are_not_utf8_are_invalid_json() {
    assert_eq!(outcome(parse_acquire(b"{\"name\":\"a\xff\"}", 1_000)), "invalid_json");
    assert_eq!(outcome(parse_acquire(b"{\"name\":\"\xed\xa0\x80\"}", 1_000)), "invalid_json");
}

#[test]
fn deep_nesting_is_an_answer_not_a_crash() {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    check_acquire(&open, "invalid_json");
    check_acquire(&format!("{{\"x\":{open}{close}}}"), "invalid_field x");
    check_acquire(&format!("{{\"name\":{open}{close}}}"), "invalid_name name");
    check_acquire(&format!("{{\"name\":\"a\",\"metadata\":{{\"k\":{open}{close}}}}}"), "invalid_metadata metadata");
    check_acquire(&"{\"metadata\":".repeat(50_000), "invalid_json");
}

#[test]
fn a_release_needs_a_token_that_is_a_text() {
    check_release(&format!(r#"{{"name":"a","token":"{TOKEN}"}}"#), "ok");
    check_release(r#"{"name":"a"}"#, "invalid_token token");
    check_release(r#"{"name":"a","token":null}"#, "invalid_token token");
    check_release(r#"{"name":"a","token":7}"#, "invalid_token token");
    let error = parse_release(br#"{"name":"a"}"#).unwrap_err().error;
    assert!(error.message.contains("required"), "{}", error.message);
}

#[test]
fn a_text_that_is_no_token_matches_nothing() {
    let upper = TOKEN.to_uppercase();
    for text in ["", "7", "x", &TOKEN[1..], upper.as_str(), &format!("{TOKEN}0")] {
        let body = format!(r#"{{"name":"a","token":"{text}"}}"#);
        assert_eq!(parse_release(body.as_bytes()).unwrap().token, None, "{text}");
        assert_eq!(parse_renew(body.as_bytes(), 1_000).unwrap().proof, Proof::Token(None), "{text}");
    }
    let body = format!(r#"{{"name":"a","token":"{TOKEN}"}}"#);
    assert_eq!(parse_release(body.as_bytes()).unwrap().token, Token::parse(TOKEN));
}

#[test]
fn a_renewal_claims_by_token_or_owner_never_both() {
    check_renew(r#"{"name":"a","owner":"o"}"#, "ok");
    check_renew(&format!(r#"{{"name":"a","token":"{TOKEN}","owner":null}}"#), "ok");
    check_renew(r#"{"name":"a"}"#, "invalid_token token");
    check_renew(&format!(r#"{{"name":"a","token":"{TOKEN}","owner":"o"}}"#), "invalid_token token");
    check_renew(r#"{"name":"a","token":7}"#, "invalid_token token");
    check_renew(r#"{"name":"a","owner":""}"#, "invalid_owner owner");
}

#[test]
fn what_a_client_writes_is_what_the_server_reads() {
    use crate::{AcquireBody, ReleaseBody, RenewBody, Secret};
    let acquire = AcquireBody {
        name: "a".into(),
        ttl_ms: Some(500),
        request_id: Some(Secret::from("0123456789abcdef")),
        metadata: Some([("k".to_owned(), "v".to_owned())].into()),
        ..AcquireBody::default()
    };
    let read = parse_acquire(&serde_json::to_vec(&acquire).unwrap(), 1_000).unwrap();
    assert_eq!((read.ttl.as_ms(), read.owner), (500, None));
    assert_eq!(read.metadata.labels(), [("k".to_owned(), "v".to_owned())]);
    let release = ReleaseBody { name: "a".into(), token: Secret::from(TOKEN) };
    assert_eq!(parse_release(&serde_json::to_vec(&release).unwrap()).unwrap().token, Token::parse(TOKEN));
    let renew = RenewBody { name: "a".into(), owner: Some("o".into()), ..RenewBody::default() };
    parse_renew(&serde_json::to_vec(&renew).unwrap(), 1_000).unwrap();
    assert!(!format!("{acquire:?} {release:?}").contains("0123456789abcdef"), "no secret in a log");
}
