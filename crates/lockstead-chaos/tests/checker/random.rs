//! Histories of a correct service, and of services with one fault each.

use std::collections::BTreeMap;

use lockstead_chaos::checker::{Kind, Limits, Report, Verdict, check};
use proptest::prelude::*;

use crate::clients::{Fate, Plan, run};
use crate::service::Bug;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_of_a_correct_service_is_accepted(
        seed in any::<u64>(),
        clients in 1_u32..12,
        ttl_max_ms in 1_u64..3_000,
        lost_percent in 0_u64..60,
    ) {
        let plan = Plan { clients, ttl_max_ms, lost_percent, ..Plan::correct(seed) };
        let report = check(&run(plan), &Limits::default());
        prop_assert_eq!(report.verdict(), Verdict::Ok, "{:?}\n{}", plan, report);
    }
}

/// How many runs of a service with this fault are rejected, of so many.
fn rejected(bug: Bug, runs: u64, plan: impl Fn(Plan) -> Plan, expected: &[Kind]) -> u64 {
    let mut others: BTreeMap<Kind, u64> = BTreeMap::new();
    let mut rejected = 0;
    for seed in 0..runs {
        let report: Report = check(&run(plan(Plan { bug, ..Plan::correct(seed) })), &Limits::default());
        let kinds: Vec<Kind> = report.violations.iter().map(|violation| violation.kind).collect();
        rejected += u64::from(kinds.iter().any(|kind| expected.contains(kind)));
        for kind in kinds.iter().filter(|kind| !expected.contains(kind)) {
            *others.entry(*kind).or_default() += 1;
        }
    }
    println!("{bug:?}: {rejected} of {runs} rejected as expected; also {others:?}");
    rejected
}

#[test]
fn a_service_that_ends_holds_early_is_rejected() {
    let kinds = [Kind::EarlyGrant, Kind::LostGrant, Kind::TwoHolders];
    assert!(rejected(Bug::EarlyEnd, 40, |plan| plan, &kinds) >= 36);
}

#[test]
fn a_service_that_lets_a_second_holder_in_is_rejected() {
    let kinds = [Kind::EarlyGrant, Kind::TwoHolders, Kind::Overlap];
    assert!(rejected(Bug::SecondHolder, 40, |plan| plan, &kinds) >= 36);
}

#[test]
fn a_service_whose_fences_fall_is_rejected() {
    assert!(rejected(Bug::LowerFence, 40, |plan| plan, &[Kind::FenceFell, Kind::FenceTwice]) >= 36);
}

#[test]
fn a_service_that_forgets_requests_is_rejected() {
    let kinds = [Kind::RetryForgotten, Kind::DeniedByOwnHold];
    let lossy = |plan| Plan { lost_percent: 40, ..plan };
    assert!(rejected(Bug::RequestForgotten, 40, lossy, &kinds) >= 10);
}

#[test]
fn a_service_that_ends_holds_late_is_rejected() {
    let long = |plan| Plan { length_ms: 20_000, ..plan };
    assert!(rejected(Bug::LateEnd, 20, long, &[Kind::LateExpiry, Kind::Blocked]) >= 16);
}

#[test]
fn a_service_that_keeps_the_place_of_dead_waiters_is_rejected() {
    let losses = &[Fate::Abandoned];
    let patient = |plan| Plan {
        clients: 12,
        length_ms: 60_000,
        ttl_max_ms: 3_000,
        wait_max_ms: 10_000,
        lost_percent: 10,
        losses,
        ..plan
    };
    assert!(rejected(Bug::DeadWaiter, 20, patient, &[Kind::GrantedToTheGone, Kind::Blocked]) >= 10);
    assert_eq!(rejected(Bug::None, 20, patient, &Kind::ALL), 0);
}

#[test]
fn a_service_that_shows_holds_that_are_over_is_rejected() {
    let kinds = [Kind::StaleRead, Kind::StaleDenial, Kind::DeniedByOwnHold, Kind::AckAfterEnd, Kind::LateExpiry];
    assert!(rejected(Bug::StaleRead, 40, |plan| plan, &kinds) >= 32);
}
