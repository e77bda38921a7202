//! Name in = name out, byte for byte.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::clock::secs;
use crate::harness::cluster::Cluster;
use crate::harness::locker::{Held, insist, take};
use crate::harness::names::{longest, tricky};

#[test]
fn a_name_comes_back_as_it_was_given_and_different_bytes_are_different_locks() {
    let cluster = Cluster::start(3);
    let (api, elsewhere) = (cluster.api(1), cluster.api(3));
    let mut held: Vec<Held> = Vec::new();
    for name in tricky() {
        elsewhere.get(&name).unwrap().must_be(404, "not_held");
        let grant = take(&api, &name, secs(60));
        assert_eq!(grant.name, name);
        held.push(grant);
    }
    let fences: BTreeSet<u64> = held.iter().map(|grant| grant.fence).collect();
    assert_eq!(fences.len(), held.len());
    for grant in held {
        let seen = elsewhere.get(&grant.name).unwrap().must_be_ok();
        assert_eq!((seen.string("name"), seen.holder_fences()), (grant.name.as_str(), vec![grant.fence]));
        let renewed = elsewhere.renew(&grant.name, &grant.token, 60_000).unwrap().must_be_ok();
        assert_eq!(renewed.string("name"), grant.name);
        let released = elsewhere.release(&grant.name, &grant.token).unwrap().must_be_ok();
        assert_eq!(released.string("name"), grant.name);
    }
}

#[test]
fn an_empty_or_too_long_name_is_refused() {
    let cluster = Cluster::start(1);
    let api = cluster.api(1);
    for name in [String::new(), longest() + "x", "é".repeat(513)] {
        api.acquire(&json!({"name": name})).unwrap().must_be(400, "invalid_name");
        api.renew(&name, "t", 1_000).unwrap().must_be(400, "invalid_name");
        api.release(&name, "t").unwrap().must_be(400, "invalid_name");
        api.get(&name).unwrap().must_be(400, "invalid_name");
    }
    for name in [json!(null), json!(7), json!(["L"]), json!({"name": "L"})] {
        api.acquire(&json!({"name": name})).unwrap().must_be(400, "invalid_name");
    }
    for query in ["", "?name", "?name=%", "?name=%zz", "?name=%F0", "?name=%ff%fe"] {
        let path = format!("/v1/locks/get{query}");
        api.call("GET", &path, None, secs(0)).unwrap().must_be(400, "invalid_name");
    }
    insist(&[api], secs(5), |api| api.get("still well")).must_be(404, "not_held");
}
