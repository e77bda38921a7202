//! Release, renew, give-back, get, expiry.

use super::check;

#[test]
fn only_the_live_grant_is_released_by_its_own_token() {
    check(
        "1 acquire - L
         2 acquire - M
         go
         > log L#1 until 1000, M#2 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         > 2 granted #2 ttl=1000 left=1000 fresh *
         3 release L #2
         4 release L #bad
         5 release L #99
         6 release N #1
         7 release L #1
         8 release L #1
         go
         > log L#1 Released
         > 3 NotHolder
         > 4 NotHolder
         > 5 NotHolder
         > 6 NotHolder
         > 7 Released *
         > 8 NotHolder",
    );
}

#[test]
fn an_expired_token_does_nothing_to_the_next_holder() {
    check(
        "1 acquire - L ttl=1000
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         time 1000
         2 acquire - L ttl=1000
         3 release L #1
         4 renew L #1
         go
         > log L#1 Expired, L#2 until 2000
         > 2 granted #2 ttl=1000 left=1000 fresh *
         > 3 NotHolder
         > 4 NotHolder",
    );
}

#[test]
fn renewals_around_the_deadline() {
    check(
        "1 acquire A L ttl=1000
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         time 999
         2 renew L #1 ttl=1000
         go
         > log L#1 until 1999
         > 2 renewed #1 ttl=1000 left=1000 *
         time 1998
         3 renew L A ttl=500
         4 renew L B ttl=500
         5 renew L #bad
         go
         > log L#1 until 2498
         > 3 renewed #1 ttl=500 left=500 *
         > 4 NotHolder
         > 5 NotHolder
         time 2498
         6 renew L #1
         7 renew L A
         8 release L #1
         go
         > log L#1 Expired
         > 6 NotHolder
         > 7 NotHolder
         > 8 NotHolder",
    );
}

#[test]
fn a_renewal_too_late_hands_over_to_the_waiter() {
    check(
        "1 acquire A L ttl=1000
         2 acquire B L wait=5000
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         time 1010
         3 renew L #1
         go
         > log L#1 Expired, L#2 until 2010
         > 3 NotHolder
         > 2 granted #2 ttl=1000 left=1000 fresh waited=1010 *",
    );
}

#[test]
fn a_grant_is_given_back_in_its_own_term_only_and_goes_to_the_next() {
    check(
        "1 acquire - L
         2 acquire - L wait=5000
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         3 giveback L #1 term=6
         4 giveback L #2
         5 giveback M #1
         6 giveback L #1
         go
         > log L#1 GivenBack, L#2 until 1000
         > 3 GaveBack
         > 4 GaveBack
         > 5 GaveBack
         > 6 GaveBack *
         > 2 granted #2 ttl=1000 left=1000 fresh *
         7 giveback L #1
         go
         > 7 GaveBack",
    );
}

#[test]
fn a_renewed_grant_is_not_given_back_and_a_read_is_no_claim() {
    check(
        "1 acquire - L
         2 acquire A M
         3 acquire - N
         go
         > log L#1 until 1000, M#2 until 1000, N#3 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         > 2 granted #2 ttl=1000 left=1000 fresh *
         > 3 granted #3 ttl=1000 left=1000 fresh *
         4 renew L #1
         5 renew M A
         6 get N
         go
         > log L#1 until 1000, M#2 until 1000
         > 4 renewed #1 ttl=1000 left=1000 *
         > 5 renewed #2 ttl=1000 left=1000 *
         > 6 got [#3 - left=1000] waiting []
         7 giveback L #1
         8 giveback M #2
         9 giveback N #3
         go
         > log N#3 GivenBack
         > 7 GaveBack
         > 8 GaveBack
         > 9 GaveBack *",
    );
}

#[test]
fn a_read_shows_an_expired_hold_until_the_sweep_drops_it() {
    check(
        "1 get L
         2 acquire A L ttl=1000
         go
         > log L#1 until 1000
         > 1 NotHeld
         > 2 granted #1 ttl=1000 left=1000 fresh *
         time 1500
         3 get L
         decide
         > log L#1 Expired
         > 3 got [#1 A left=0] waiting []
         apply
         4 get L
         go
         > 4 NotHeld",
    );
}

#[test]
fn the_sweep_grants_to_waiters_and_is_chunked() {
    check(
        "limits sweep=2
         1 acquire - A ttl=1000
         2 acquire - B ttl=1001
         3 acquire - C ttl=1002
         4 acquire - B ttl=1000 wait=9000
         go
         > log A#1 until 1000, B#2 until 1001, C#3 until 1002
         > 1 granted #1 ttl=1000 left=1000 fresh *
         > 2 granted #2 ttl=1001 left=1001 fresh *
         > 3 granted #3 ttl=1002 left=1002 fresh *
         time 2000
         go
         > log A#1 Expired, B#2 Expired, B#4 until 3000
         > 4 granted #4 ttl=1000 left=1000 fresh waited=2000 *
         state
         > waiting=0 pending=true wait_end=None live=2
         go
         > log C#3 Expired
         state
         > waiting=0 pending=false wait_end=None live=1",
    );
}

#[test]
fn a_wait_that_ends_as_the_hold_expires_is_granted() {
    check(
        "1 acquire - L ttl=1000
         2 acquire - L wait=1000
         3 acquire - L wait=1000
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         time 1000
         go
         > log L#1 Expired, L#2 until 2000
         > 2 granted #2 ttl=1000 left=1000 fresh waited=1000 *
         > 3 held by [#2 - left=1000] queue=0 waited=1000",
    );
}
