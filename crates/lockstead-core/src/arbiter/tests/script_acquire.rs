//! Who gets a lock: order of arrival, retries, owners.

use super::check;

#[test]
fn a_free_lock_is_granted_and_a_held_one_refused() {
    check(
        "1 acquire - L ttl=1000 label=blue
         2 acquire - L
         decide
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         > 2 held by [#1 - left=1000 blue] queue=0
         apply
         time 400
         3 acquire - L
         go
         > 3 held by [#1 - left=600 blue] queue=0",
    );
}

#[test]
fn waiters_are_served_in_order_of_arrival_each_handover_in_one_batch() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L ttl=60000 wait=5000
         3 acquire - L ttl=60000 wait=5000
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         state
         > waiting=2 pending=false wait_end=Some(5000) live=1
         time 100
         4 release L #1
         go
         > log L#1 Released, L#2 until 60100
         > 4 Released *
         > 2 granted #2 ttl=60000 left=60000 fresh waited=100 *
         5 release L #2
         6 acquire - L
         go
         > log L#2 Released, L#3 until 60100
         > 5 Released *
         > 3 granted #3 ttl=60000 left=60000 fresh waited=100 *
         > 6 held by [#3 - left=60000] queue=0
         state
         > waiting=0 pending=false wait_end=None live=1",
    );
}

#[test]
fn a_try_never_passes_the_queue_even_when_the_hold_has_expired() {
    check(
        "1 acquire - L ttl=1000
         2 acquire - L ttl=1000 wait=5000
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         time 1000
         3 acquire - L
         4 acquire - L wait=100
         go
         > log L#1 Expired, L#2 until 2000
         > 2 granted #2 ttl=1000 left=1000 fresh waited=1000 *
         > 3 held by [#2 - left=1000] queue=0",
    );
}

#[test]
fn an_abandoned_waiter_is_skipped_and_the_gauge_returns_to_0() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=30000
         3 acquire - L wait=30000
         4 acquire - M wait=30000
         cancel 4
         cancel 99
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         cancel 2
         5 release L #1
         go
         > log L#1 Released, L#2 until 1000
         > 5 Released *
         > 3 granted #2 ttl=1000 left=1000 fresh *
         state
         > waiting=0 pending=false wait_end=None live=1",
    );
}

#[test]
fn a_wait_that_is_over_is_refused_with_the_holders() {
    check(
        "1 acquire A L ttl=60000
         2 acquire B L wait=500
         3 acquire C L wait=900 ends=700
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         time 499
         go
         time 500
         go
         > 2 held by [#1 A left=59500] queue=1 waited=500
         state
         > waiting=1 pending=false wait_end=Some(700) live=1
         time 700
         go
         > 3 overdue
         state
         > waiting=0 pending=false wait_end=None live=1",
    );
}

#[test]
fn a_request_that_ended_before_its_decision_leaves_silently() {
    check(
        "1 acquire - L ends=100
         2 release L #1 ends=100
         time 100
         3 acquire - L
         go
         > log L#1 until 1100
         > 3 granted #1 ttl=1000 left=1000 fresh *
         > 1 overdue
         > 2 overdue",
    );
}

#[test]
fn a_retry_gets_the_grant_it_already_got_and_its_fence_cannot_be_given_back() {
    check(
        "1 acquire A L ttl=1000 rid=R
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         time 300
         2 acquire A L ttl=5000 rid=R
         3 acquire B L rid=R
         4 acquire - L rid=R
         5 giveback L #1
         go
         > 2 granted #1 ttl=1000 left=700
         > 3 RequestIdReused
         > 4 RequestIdReused
         > 5 GaveBack",
    );
}

#[test]
fn a_retry_in_the_same_drain_sees_the_grant_and_neither_answer_is_fresh() {
    check(
        "1 acquire - L rid=R
         2 acquire - L rid=R
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 *
         > 2 granted #1 ttl=1000 left=1000
         3 giveback L #1
         go
         > 3 GaveBack",
    );
}

#[test]
fn a_retry_after_the_ttl_is_a_fresh_grant() {
    check(
        "1 acquire A L ttl=1000 rid=R
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         time 1000
         2 acquire A L ttl=1000 rid=R
         go
         > log L#1 Expired, L#2 until 2000
         > 2 granted #2 ttl=1000 left=1000 fresh *",
    );
}

#[test]
fn a_retry_takes_over_the_place_of_a_waiting_request_and_both_are_answered() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=5000 rid=R ttl=1000 label=old
         3 acquire - L wait=5000
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         time 100
         4 acquire - L wait=5000 rid=R ttl=2000 label=new
         5 acquire A L wait=5000 rid=R
         go
         > 5 RequestIdReused
         state
         > waiting=3 pending=false wait_end=Some(5000) live=1
         time 200
         6 release L #1
         go
         > log L#1 Released, L#2 until 2200
         > 6 Released *
         > 2 granted #2 ttl=2000 left=2000 waited=200 *
         > 4 granted #2 ttl=2000 left=2000 waited=100 *
         7 giveback L #2
         8 get L
         go
         > 7 GaveBack
         > 8 got [#2 - left=2000 new] waiting [200]",
    );
}

#[test]
fn a_cancel_after_a_take_over_only_removes_its_own_request() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=5000 rid=R
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         time 100
         3 acquire - L wait=5000 rid=R
         go
         cancel 2
         4 release L #1
         go
         > log L#1 Released, L#2 until 1100
         > 4 Released *
         > 3 granted #2 ttl=1000 left=1000 fresh *",
    );
}

#[test]
fn each_of_two_requests_at_one_place_has_its_own_wait_end() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=200 rid=R
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         time 100
         3 acquire - L wait=5000 rid=R
         4 acquire - L rid=R
         go
         > 4 held by [#1 - left=59900] queue=1
         time 200
         go
         > 2 held by [#1 - left=59800] queue=1 waited=200
         5 release L #1
         go
         > log L#1 Released, L#2 until 1200
         > 5 Released *
         > 3 granted #2 ttl=1000 left=1000 fresh waited=100 *",
    );
}

#[test]
fn a_waiter_that_comes_back_with_its_queued_time_keeps_its_place() {
    // Both had waited longer than this node runs; without a request id queued_ms is not honoured.
    check(
        "1 acquire - L ttl=60000
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         2 acquire - L wait=5000
         3 acquire - L wait=5000 rid=R3 queued=20000
         4 acquire - L wait=5000 rid=R4 queued=30000
         5 acquire - L wait=5000 queued=40000
         go
         6 get L
         7 release L #1
         go
         > log L#1 Released, L#2 until 1000
         > 6 got [#1 - left=60000] waiting [30000 20000 0 0]
         > 7 Released *
         > 4 granted #2 ttl=1000 left=1000 fresh *
         8 release L #2
         go
         > log L#2 Released, L#3 until 1000
         > 8 Released *
         > 3 granted #3 ttl=1000 left=1000 fresh *",
    );
}

#[test]
fn a_take_over_keeps_the_earlier_of_the_two_places() {
    check(
        "1 acquire - L ttl=60000
         2 acquire - L wait=5000
         3 acquire - L wait=5000 rid=R
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         4 acquire - L wait=5000 rid=R queued=9000
         go
         5 release L #1
         go
         > log L#1 Released, L#2 until 1000
         > 5 Released *
         > 3 granted #2 ttl=1000 left=1000 *
         > 4 granted #2 ttl=1000 left=1000 *",
    );
}

#[test]
fn an_owner_renews_its_own_hold_and_the_new_ttl_counts_from_now() {
    check(
        "1 acquire A L ttl=60000
         2 acquire A L ttl=1000
         3 acquire - L
         go
         > log L#1 until 60000, L#1 until 1000
         > 1 granted #1 ttl=60000 left=60000 *
         > 2 granted #1 ttl=1000 left=1000 renewed *
         > 3 held by [#1 A left=1000] queue=0
         time 500
         4 acquire A L ttl=2000
         5 giveback L #1
         go
         > log L#1 until 2500
         > 4 granted #1 ttl=2000 left=2000 renewed *
         > 5 GaveBack",
    );
}

#[test]
fn waiters_of_one_owner_are_all_answered_when_one_of_them_gets_the_lock() {
    check(
        "1 acquire A L ttl=60000
         2 acquire B L wait=5000 ttl=3000
         3 acquire C L wait=5000
         4 acquire B L wait=5000 ttl=2000
         go
         > log L#1 until 60000
         > 1 granted #1 ttl=60000 left=60000 fresh *
         5 release L #1
         go
         > log L#1 Released, L#2 until 2000
         > 5 Released *
         > 2 granted #2 ttl=2000 left=2000 *
         > 4 granted #2 ttl=2000 left=2000 renewed *
         6 giveback L #2
         state
         > waiting=1 pending=true wait_end=Some(5000) live=1
         go
         > 6 GaveBack",
    );
}
