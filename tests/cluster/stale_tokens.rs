//! Only the live grant's own token counts.

use serde_json::json;

use crate::harness::clock::{LATE_MAX, NOISE, ms, secs};
use crate::harness::cluster::Cluster;
use crate::harness::locker::{Held, take, waiting_body};

#[test]
fn no_token_but_that_of_the_live_grant_releases_or_renews() {
    let cluster = Cluster::start(3);
    let (api, through_another) = (cluster.api(1), cluster.api(2));
    let expired = take(&api, "L", ms(300));
    let live = Held::from(&api.acquire(&waiting_body("L", secs(60), LATE_MAX + NOISE + secs(2))).unwrap());
    let other = take(&api, "M", secs(60));
    let mut one_bit_off = live.token.clone().into_bytes();
    one_bit_off[0] = if one_bit_off[0] == b'0' { b'1' } else { b'0' };
    let stale = [
        expired.token,
        other.token,
        String::new(),
        String::from_utf8(one_bit_off).unwrap(),
        live.fence.to_string(),
        live.token.to_uppercase() + "A",
        format!(" {}", live.token),
        "\u{0}".to_owned(),
    ];
    for token in &stale {
        for api in [api, through_another] {
            api.release("L", token).unwrap().must_be(409, "not_holder");
            api.renew("L", token, 1_000).unwrap().must_be(409, "not_holder");
        }
    }
    let seen = api.get("L").unwrap().must_be_ok();
    assert_eq!(seen.holder_fences(), [live.fence]);
    let left_ms = seen.body["holders"][0]["expires_in_ms"].as_u64().unwrap();
    assert!(left_ms > 30_000, "nobody shortened it: {seen:?}");
    through_another.renew("L", &live.token, 60_000).unwrap().must_be_ok();
    through_another.release("L", &live.token).unwrap().must_be_ok();
    api.release("L", &live.token).unwrap().must_be(409, "not_holder");
}

#[test]
fn a_fence_as_a_number_is_no_token() {
    let cluster = Cluster::start(1);
    let api = cluster.api(1);
    let held = take(&api, "L", secs(30));
    let answer = api.renew_with(&json!({"name": "L", "token": held.fence})).unwrap();
    answer.must_be(400, "invalid_token");
    assert_eq!(api.get("L").unwrap().holder_fences(), [held.fence]);
}
