//! What callers may write: names, TTLs, tokens, ids.

use std::str::FromStr as _;

use lockstead_core::name::{METADATA_BYTES_MAX, NAME_BYTES_MAX};
use lockstead_core::{
    ClusterId, Incarnation, LockKey, LockName, Metadata, NamespaceName, OwnerName, RequestId, Token, Ttl,
};

#[test]
fn names_go_in_and_come_out_byte_for_byte() {
    let longest = "x".repeat(NAME_BYTES_MAX);
    let nfc_nfd = ["\u{e9}", "e\u{301}"];
    let names = [
        "a/b", "a%2Fb", "/a", "a//b", ".", "..", "a/../b", "%", "%zz", "\0", "a\0b", "#?&+", " ", "\n", "\u{202e}",
        nfc_nfd[0], nfc_nfd[1], "🔒", "list", "watch", &longest,
    ];
    let mut keys = std::collections::BTreeSet::new();
    for name in names {
        let parsed = LockName::parse(name).unwrap();
        assert_eq!(parsed.as_str(), name);
        let key = LockKey::in_default(&parsed);
        assert_eq!((key.namespace(), key.name()), ("default", name));
        assert_eq!(LockKey::new(&NamespaceName::default_namespace(), &parsed), key);
        let standard = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(&key, standard).expect("a text");
        let decoded = bincode::serde::decode_from_slice(&bytes, standard).expect("it was encoded");
        assert_eq!(decoded, (key.clone(), bytes.len()));
        assert!(keys.insert(key), "{name:?} is the same lock as another");
    }
}

#[test]
fn names_out_of_bounds_are_refused_with_what_is_allowed() {
    for name in [String::new(), "x".repeat(1_025), "é".repeat(513)] {
        let error = LockName::parse(&name).unwrap_err();
        assert_eq!(error.to_string(), "a lock name must be 1 to 1024 bytes of UTF-8");
    }
    for (length, valid) in [(0, false), (1, true), (256, true), (257, false)] {
        assert_eq!(OwnerName::parse(&"o".repeat(length)).is_ok(), valid, "owner of {length}");
    }
    for (length, valid) in [(0, false), (15, false), (16, true), (128, true), (129, false)] {
        assert_eq!(RequestId::parse(&"r".repeat(length)).is_ok(), valid, "request id of {length}");
    }
    for (namespace, valid) in
        [("a.b_c-9", true), ("", false), ("A", false), ("a/b", false), ("a\0", false), ("é", false)]
    {
        assert_eq!(NamespaceName::parse(namespace).is_ok(), valid, "namespace {namespace:?}");
    }
    assert!(NamespaceName::parse(&"n".repeat(64)).is_ok() && NamespaceName::parse(&"n".repeat(65)).is_err());
}

#[test]
fn metadata_is_sorted_bounded_and_without_repeated_keys() {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let metadata = Metadata::parse(vec![label("b", "2"), label("a", "1")]).unwrap();
    assert_eq!(metadata.labels(), [label("a", "1"), label("b", "2")]);
    assert!(Metadata::parse(vec![label("a", "1"), label("a", "2")]).is_err());
    assert!(Metadata::parse(vec![label("k", &"v".repeat(METADATA_BYTES_MAX - 1))]).is_ok());
    assert!(Metadata::parse(vec![label("k", &"v".repeat(METADATA_BYTES_MAX))]).is_err());
}

#[test]
fn ttls_below_1_mean_30_s_and_others_keep_to_their_range() {
    let max = i64::try_from(Ttl::MAX_MS_DEFAULT).unwrap();
    let cases: [(Option<i64>, Option<u64>); 13] = [
        (None, Some(30_000)),
        (Some(0), Some(30_000)),
        (Some(-1), Some(30_000)),
        (Some(i64::MIN), Some(30_000)),
        (Some(1), None),
        (Some(99), None),
        (Some(100), Some(100)),
        (Some(30_000), Some(30_000)),
        (Some(max), Some(86_400_000)),
        (Some(max + 1), None),
        (Some((1 << 53) + 1), None),
        (Some(i64::MAX), None),
        (Some(i64::MAX - 1), None),
    ];
    for (asked, granted) in cases {
        let ttl = Ttl::from_request(asked, Ttl::MAX_MS_DEFAULT);
        assert_eq!(ttl.ok().map(Ttl::as_ms), granted, "{asked:?}");
    }
    let error = Ttl::from_request(Some(5), 60_000).unwrap_err();
    assert_eq!(error.to_string(), "a TTL above 0 must be 100 to 60000 ms");
}

#[test]
fn tokens_are_32_lower_case_hex_digits() {
    let text = "00112233445566778899aabbccddeeff";
    let token = Token::parse(text).unwrap();
    assert_eq!(token.0[..3], [0x00, 0x11, 0x22]);
    assert_eq!(token.to_string(), text);
    assert_eq!(format!("{token:?}"), "Token(..)", "a secret is not for logs");
    let upper = text.to_uppercase();
    let (short, long, sign, multibyte) = (&text[1..], format!("{text}0"), format!("+{}", &text[1..]), "é".repeat(16));
    for other in ["", "1", &upper, short, &long, &sign, &multibyte, "0x112233445566778899aabbccddeeff"] {
        assert_eq!(Token::parse(other), None, "{other:?}");
    }
}

#[test]
fn ids_are_hex_of_their_length() {
    let cluster = ClusterId(0xab);
    assert_eq!(cluster.to_string(), format!("{:0>32}", "ab"));
    assert_eq!(ClusterId::from_str(&cluster.to_string()), Ok(cluster));
    let incarnation = Incarnation(u64::MAX);
    assert_eq!(Incarnation::from_str(&incarnation.to_string()), Ok(incarnation));
    for other in ["", "ab", &"A".repeat(32), &format!("+{}", "0".repeat(31))] {
        assert!(ClusterId::from_str(other).is_err() && Incarnation::from_str(other).is_err(), "{other:?}");
    }
}
