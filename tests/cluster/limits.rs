//! The bound on live locks.

use serde_json::json;

use crate::harness::clock::{eventually, secs};
use crate::harness::cluster::Setup;

#[test]
fn past_the_limit_an_acquire_is_429_until_a_lock_ends() {
    let cluster = Setup::of(3).with_args(&["--locks-max", "3"]).start();
    let api = cluster.api(2);
    let acquire = |name: &str, ttl_ms: u64| api.acquire(&json!({"name": name, "ttl_ms": ttl_ms})).unwrap();
    let first = acquire("a", 60_000);
    acquire("b", 60_000);
    acquire("short", 3_000);
    let refused = acquire("c", 60_000);
    assert_eq!(refused.status, 429, "{refused:?}");
    let error = &refused.body["error"];
    assert_eq!((&error["code"], &error["limit"]), (&json!("limit_exceeded"), &json!(3)));
    // A lock that is held stays "held", whatever the limit.
    assert_eq!(acquire("a", 60_000).status, 409);
    eventually("a lock past its deadline makes room", secs(20), || (acquire("c", 60_000).status == 200).then_some(()));
    assert_eq!(acquire("d", 60_000).status, 429);
    let token = first.string("token");
    assert_eq!(api.release("a", token).unwrap().status, 200);
    assert_eq!(acquire("d", 60_000).status, 200);
}
