//! Old records said once more, so that the log can be purged.

use super::*;
use crate::record::REQUEST_BYTES_MAX;

#[test]
fn the_oldest_statements_are_restated_first_as_far_as_the_bytes_go() {
    check(
        "1 acquire - L ttl=9000
         go
         > log L#1 until 9000
         > 1 granted #1 ttl=9000 left=9000 fresh *
         2 acquire - M ttl=9000
         go
         > log M#2 until 9000
         > 2 granted #2 ttl=9000 left=9000 fresh *
         3 acquire - N ttl=9000
         go
         > log N#3 until 9000
         > 3 granted #3 ttl=9000 left=9000 fresh *
         go upto=0
         go upto=2 bytes=120
         > log again L#1 until 9000, again M#2 until 9000
         go upto=5 bytes=1
         > log again N#3 until 9000
         go upto=3
         go upto=4 bytes=0
         > log again L#1 until 9000
         go upto=4
         > log again M#2 until 9000",
    );
}

#[test]
fn what_a_request_makes_of_a_restated_hold_follows_it() {
    check(
        "1 acquire - L ttl=9000
         2 acquire - M ttl=9000
         3 acquire - M ttl=9000 wait=9000
         go
         > log L#1 until 9000, M#2 until 9000
         > 1 granted #1 ttl=9000 left=9000 fresh *
         > 2 granted #2 ttl=9000 left=9000 fresh *
         time 10
         4 renew L #1 ttl=5000
         5 release M #2
         go upto=1
         > log again L#1 until 9000, again M#2 until 9000, L#1 until 5010, M#2 Released, M#3 until 9010
         > 4 renewed #1 ttl=5000 left=5000 *
         > 5 Released *
         > 3 granted #3 ttl=9000 left=9000 fresh waited=10 *
         go upto=1
         state
         > waiting=0 pending=false wait_end=None live=2",
    );
}

#[test]
fn a_hold_past_its_deadline_is_dropped_and_one_that_is_waited_for_goes_to_its_waiter() {
    check(
        "limits sweep=1
         1 acquire - K ttl=9000
         2 acquire - L ttl=1000
         3 acquire - M ttl=1000
         4 acquire - N ttl=1000
         5 acquire - L ttl=9000 wait=9000
         go
         > log K#1 until 9000, L#2 until 1000, M#3 until 1000, N#4 until 1000
         > 1 granted #1 ttl=9000 left=9000 fresh *
         > 2 granted #2 ttl=1000 left=1000 fresh *
         > 3 granted #3 ttl=1000 left=1000 fresh *
         > 4 granted #4 ttl=1000 left=1000 fresh *
         time 1000
         6 acquire - M
         go upto=1
         > log again K#1 until 9000, M#3 Expired, N#4 Expired, M#5 until 2000, L#2 Expired, L#6 until 10000
         > 6 granted #5 ttl=1000 left=1000 fresh *
         > 5 granted #6 ttl=9000 left=9000 fresh waited=1000 *",
    );
}

#[test]
fn a_take_back_undoes_restatements_without_a_trace() {
    check(
        "1 acquire - L ttl=9000
         go
         > log L#1 until 9000
         > 1 granted #1 ttl=9000 left=9000 fresh *
         decide upto=1
         > log again L#1 until 9000
         refuse
         state
         > waiting=0 pending=true wait_end=None live=1
         2 release L #1
         decide
         > log L#1 Released
         > 2 Released *
         refuse
         go upto=1
         > log again L#1 until 9000, L#1 Released
         > 2 Released *",
    );
}

#[test]
fn requests_find_room_beside_restatements_however_many_bytes_those_may_take() {
    let label = "x".repeat(4_096 - 5);
    let mut world = Script::new(7, Limits::default(), &Residue::default());
    for number in 1..=40 {
        world.run(&format!("{number} acquire - lock-{number} ttl=9000 label={}", &label[..2_000]));
    }
    while world.arbiter.has_pending() {
        world.run("go");
    }
    assert_eq!(world.table.live_records(), 40);
    for number in 41..=44 {
        world.run(&format!("{number} renew lock-{} #{} ttl=5000", number - 40, number - 40));
    }
    world.run("decide upto=99 bytes=10000000");
    let drain = world.in_flight.as_ref().unwrap();
    assert_eq!(drain.answers.len(), 4, "renewals waited behind restatements");
    let bytes = drain.batch.as_ref().unwrap().len_bytes();
    assert!(drain.restated >= 6 && bytes <= world.arbiter.limits.batch_bytes_max, "{} in {bytes}", drain.restated);
    let restated_bytes: u64 = (1..=drain.restated)
        .map(|number| Record::restated_bytes(&world.table.holds(&lock_key(&format!("lock-{number}")))[0]))
        .sum();
    let room = world.arbiter.limits.batch_bytes_max - usize::try_from(restated_bytes).unwrap();
    assert!(room >= REQUEST_BYTES_MAX + crate::record::BATCH_HEADER_BYTES, "no request of the largest size fits in");
}

#[test]
fn a_batch_smaller_than_a_record_restates_one_and_takes_one_request() {
    check(
        "limits bytes=80
         1 acquire - L ttl=9000
         2 acquire - M ttl=9000
         go
         > log L#1 until 9000
         > 1 granted #1 ttl=9000 left=9000 fresh *
         go
         > log M#2 until 9000
         > 2 granted #2 ttl=9000 left=9000 fresh *
         3 renew L #1 ttl=8000
         4 renew M #2 ttl=8000
         go upto=2
         > log again L#1 until 9000, L#1 until 8000
         > 3 renewed #1 ttl=8000 left=8000 *
         go upto=2
         > log again M#2 until 9000, M#2 until 8000
         > 4 renewed #2 ttl=8000 left=8000 *",
    );
}
