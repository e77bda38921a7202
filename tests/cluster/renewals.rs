//! Renewals at the very moment of the deadline.

use std::time::Duration;

use crate::harness::api::Api;
use crate::harness::clock::{LATE_MAX, ms, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client, done};
use crate::harness::locker::{Held, take, waiting_body};
use crate::harness::scale::scaled;

const TTL: Duration = secs(1);
const AT_ONCE: u64 = 24;

/// Renews a lock `after` its grant was received, with or without a waiter, and checks what came of it; whether it was
/// renewed.
fn renew_against_expiry(api: Api, elsewhere: Api, name: &str, after: Duration, waited_for: bool) -> bool {
    let held = take(&api, name, TTL);
    let waiter = waited_for.then(|| {
        let body = waiting_body(name, secs(30), secs(20));
        client(move || Held::from(&elsewhere.acquire(&body).unwrap().must_be_ok()))
    });
    pause_until(held.received + after);
    let answer = api.renew(name, &held.token, 1_000).unwrap();
    let renewed = answer.status == 200;
    let mut newest = held.clone();
    if renewed {
        newest = held.renewed(&answer);
        let late = answer.sent.saturating_duration_since(held.latest_end());
        assert!(late <= LATE_MAX, "renewed {late:?} after its end: {held:?} {answer:?}");
    } else {
        let answer = answer.must_be(409, "not_holder");
        assert!(answer.received >= held.earliest_end(), "refused before its end: {held:?} {answer:?}");
    }
    if let Some(waiter) = waiter {
        let next = done(waiter);
        next.must_follow(&newest, Duration::ZERO);
        api.renew(name, &held.token, 1_000).unwrap().must_be(409, "not_holder");
        elsewhere.release(name, &next.token).unwrap().must_be_ok();
        api.renew(name, &held.token, 1_000).unwrap().must_be(409, "not_holder");
        api.get(name).unwrap().must_be(404, "not_held");
    }
    renewed
}

#[test]
fn a_renewal_at_the_deadline_either_kept_the_hold_or_is_refused() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    let rounds = scaled(4, 1_000 / AT_ONCE);
    let mut renewed_early = 0;
    for round in 0..rounds {
        let tries: Vec<_> = (0..AT_ONCE)
            .map(|at| {
                let after = ms([900, 990, 1_000, 1_010, 1_030, 1_100][usize::try_from(at % 6).unwrap()]);
                let (api, elsewhere) =
                    (apis[usize::try_from(at % 3).unwrap()], apis[usize::try_from(at / 3 % 3).unwrap()]);
                let name = format!("round {round}, lock {at}");
                client(move || (after, renew_against_expiry(api, elsewhere, &name, after, at % 2 == 0)))
            })
            .collect();
        let outcomes = all(tries);
        renewed_early += outcomes.iter().filter(|(after, renewed)| *after < TTL && *renewed).count();
    }
    assert!(renewed_early > 0, "the case needs renewals in time");
}
