//! A refused batch leaves no trace.

use super::check;

#[test]
fn a_refused_drain_is_decided_afresh_with_the_same_result() {
    check(
        "1 acquire - L ttl=1000
         2 acquire - L wait=5000
         decide
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         refuse
         state
         > waiting=0 pending=true wait_end=None live=0
         3 acquire - L
         decide
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         > 3 held by [#1 - left=1000] queue=1
         apply
         state
         > waiting=1 pending=false wait_end=Some(5000) live=1",
    );
}

#[test]
fn a_request_cancelled_after_or_before_the_take_back_stays_cancelled() {
    check(
        "1 acquire - L
         2 acquire - L wait=5000
         3 acquire - L wait=5000
         decide
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         cancel 2
         state
         > waiting=1 pending=false wait_end=Some(5000) live=0
         refuse
         cancel 1
         go
         > log L#1 until 1000
         > 3 granted #1 ttl=1000 left=1000 fresh *
         state
         > waiting=0 pending=false wait_end=None live=1",
    );
}

#[test]
fn waiters_served_by_a_refused_batch_wait_again_in_their_places() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=5000 rid=R
         3 acquire - L wait=5000
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         4 release L #1
         5 acquire - L wait=5000 rid=R
         decide
         > log L#1 Released, L#2 until 1000
         > 4 Released *
         > 2 granted #2 ttl=1000 left=1000 *
         > 5 granted #2 ttl=1000 left=1000
         refuse
         state
         > waiting=2 pending=true wait_end=Some(5000) live=1
         cancel 4
         go
         state
         > waiting=3 pending=false wait_end=Some(5000) live=1
         cancel 2
         cancel 5
         6 release L #1
         go
         > log L#1 Released, L#2 until 1000
         > 6 Released *
         > 3 granted #2 ttl=1000 left=1000 fresh *",
    );
}

#[test]
fn a_take_over_that_is_taken_back_leaves_the_older_request_as_it_was() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=5000
         3 acquire - L wait=5000 rid=R ttl=2000
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         4 acquire - L wait=5000 rid=R ttl=3000 queued=9000
         5 renew L #1 ttl=1000
         decide
         > log L#1 until 1000
         > 5 renewed #1 ttl=1000 left=1000 *
         refuse
         cancel 4
         cancel 5
         go
         6 giveback L #1
         go
         > log L#1 GivenBack, L#2 until 1000
         > 6 GaveBack *
         > 2 granted #2 ttl=1000 left=1000 fresh *",
    );
}

#[test]
fn claims_of_a_refused_batch_are_forgotten_and_ended_ones_restored() {
    check(
        "1 acquire - L
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         2 renew L #1
         go
         > log L#1 until 1000
         > 2 renewed #1 ttl=1000 left=1000 *
         3 release L #1
         decide
         > log L#1 Released
         > 3 Released *
         refuse
         cancel 3
         4 giveback L #1
         go
         > 4 GaveBack",
    );
}

#[test]
fn waits_that_ended_in_a_refused_drain_end_again() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=500 rid=R
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         3 acquire - L wait=900 rid=R
         4 acquire - L wait=900 ends=500
         go
         time 500
         5 acquire - M
         decide
         > log M#2 until 1500
         > 2 held by [#1 - left=59500] queue=1 waited=500
         > 5 granted #2 ttl=1000 left=1000 fresh *
         > 4 overdue
         refuse
         state
         > waiting=3 pending=true wait_end=Some(500) live=1
         time 501
         go
         > log M#2 until 1501
         > 2 held by [#1 - left=59499] queue=1 waited=501
         > 5 granted #2 ttl=1000 left=1000 fresh waited=1 *
         > 4 overdue",
    );
}
