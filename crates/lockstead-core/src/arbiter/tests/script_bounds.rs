//! Limits, hold-off, ticks, the room in a batch.

use super::*;

#[test]
fn a_full_namespace_refuses_but_renews_and_counts_this_batch() {
    check(
        "limits locks=2
         1 acquire A L
         2 acquire - M
         3 acquire - N
         4 acquire A L
         5 acquire - other/N
         go
         > log L#1 until 1000, M#2 until 1000, L#1 until 1000, N#3 until 1000
         > 1 granted #1 ttl=1000 left=1000 *
         > 2 granted #2 ttl=1000 left=1000 fresh *
         > 3 limit 2 current 2
         > 4 granted #1 ttl=1000 left=1000 renewed *
         > 5 granted #3 ttl=1000 left=1000 fresh *",
    );
}

#[test]
fn a_full_namespace_drops_what_has_expired_before_it_refuses() {
    check(
        "limits locks=2 sweep=0
         1 acquire - L ttl=1000
         2 acquire - M ttl=1000
         3 acquire - L ttl=5000 wait=9000
         go
         > log L#1 until 1000, M#2 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         > 2 granted #2 ttl=1000 left=1000 fresh *
         time 1000
         4 acquire - N
         5 acquire - O
         6 release L #1
         go
         > log M#2 Expired, N#3 until 2000, L#1 Expired, L#4 until 6000
         > 4 granted #3 ttl=1000 left=1000 fresh *
         > 5 limit 2 current 2
         > 6 NotHolder
         > 3 granted #4 ttl=5000 left=5000 fresh waited=1000 *",
    );
}

#[test]
fn a_head_waiter_past_the_limit_is_refused_and_nobody_is_left_on_a_free_lock() {
    check(
        "limits locks=1
         1 acquire - L ttl=1000
         2 acquire - L wait=9000 ttl=1000
         3 acquire - L wait=9000 ttl=1000
         go
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         limits locks=0
         4 release L #1
         go
         > log L#1 Released
         > 4 Released *
         > 2 limit 0 current 0
         > 3 limit 0 current 0
         state
         > waiting=0 pending=false wait_end=None live=0",
    );
}

#[test]
fn nothing_is_granted_before_the_hold_off_ends_and_then_the_queue_first() {
    check(
        "hold-off 1000
         1 acquire - L
         2 acquire A L wait=5000
         3 acquire - M wait=200
         tick
         > log tick
         > 1 held by [] queue=0
         apply
         time 200
         go
         > 3 held by [] queue=0 waited=200
         time 999
         4 acquire - L
         tick
         > log tick
         > 4 held by [] queue=1
         apply
         time 1000
         5 acquire - L
         6 acquire - M
         tick
         > log L#1 until 2000, M#2 until 2000
         > 2 granted #1 ttl=1000 left=1000 fresh waited=1000 *
         > 5 held by [#1 A left=1000] queue=0
         > 6 granted #2 ttl=1000 left=1000 fresh *
         apply",
    );
    check(
        "hold-off 1000
         1 acquire - L wait=5000
         2 acquire - L wait=5000
         go
         time 1000
         go
         > log L#1 until 2000
         > 1 granted #1 ttl=1000 left=1000 fresh waited=1000 *
         tick
         > log tick",
    );
}

#[test]
fn the_first_decision_after_a_hold_off_serves_who_waits_and_logs_that_it_is_over() {
    check(
        "hold-off 1000
         time 300
         1 acquire - L wait=8000
         go
         time 750
         tick
         > log tick
         apply
         time 1003
         decide
         > log L#1 until 2003
         > 1 granted #1 ttl=1000 left=1000 fresh waited=703 *
         refuse
         time 1004
         go
         > log L#1 until 2004
         > 1 granted #1 ttl=1000 left=1000 fresh waited=704 *
         2 release L #1
         go
         > log L#1 Released
         > 2 Released *
         tick",
    );
    check(
        "hold-off 1000
         time 999
         go
         time 1003
         1 get L
         decide
         > log tick
         > 1 NotHeld
         refuse
         go
         > log tick
         > 1 NotHeld
         go
         tick",
    );
}

#[test]
fn a_tick_is_logged_only_while_something_lives_and_nothing_else_is_logged() {
    check(
        "tick
         apply
         1 acquire - L
         tick
         > log L#1 until 1000
         > 1 granted #1 ttl=1000 left=1000 fresh *
         apply
         time 250
         decide
         apply
         tick
         > log tick
         apply
         2 release L #1
         go
         > log L#1 Released
         > 2 Released *
         tick",
    );
}

#[test]
fn the_last_fence_is_a_limit() {
    check(
        "fence 9007199254740990
         1 acquire - L
         2 acquire - M
         go
         > log L#9007199254740991 until 1000
         > 1 granted #9007199254740991 ttl=1000 left=1000 fresh *
         > 2 limit 9007199254740991 current 9007199254740991",
    );
}

#[test]
fn close_names_every_request_not_yet_answered() {
    let mut script = Script::new(7, Limits::default(), &Residue::default());
    for line in ["1 acquire - L", "2 acquire - L wait=5000", "3 acquire - L wait=5000 rid=R", "go"] {
        script.run(line);
    }
    for line in ["4 acquire - L wait=5000 rid=R", "go", "5 acquire - L", "9 get L"] {
        script.run(line);
    }
    assert_eq!(script.arbiter.term(), 7);
    assert_eq!(script.arbiter.close(), [2, 3, 4, 5, 9].map(RequestNumber));
}

/// Runs drains until nothing is pending; gives the size of each batch.
fn drain_all(script: &mut Script) -> Vec<usize> {
    let mut sizes = Vec::new();
    while script.arbiter.has_pending() {
        script.decide(false, None);
        let drain = script.in_flight.as_ref().unwrap();
        sizes.extend(drain.batch.as_ref().map(BatchEncoder::len_bytes));
        script.apply();
        assert!(sizes.len() < 1_000, "the arbiter makes no progress");
    }
    sizes
}

#[test]
fn a_drain_is_cut_exactly_where_its_batch_would_pass_the_bound() {
    let mut script = Script::new(7, Limits { batch_bytes_max: 1_000, ..Limits::default() }, &Residue::default());
    for number in 1..=200 {
        script.run(&format!("{number} acquire - lock-{number:03}"));
    }
    let sizes = drain_all(&mut script);
    let record_bytes = script.table.all_holds().map(|hold| Batch {
        term: 7,
        time: LeaseTime(0),
        records: vec![Record::Hold(hold.clone())],
    });
    let largest = record_bytes.map(|batch| batch.encode().len() - crate::record::BATCH_HEADER_BYTES).max().unwrap();
    let (last, full) = sizes.split_last().unwrap();
    assert!(*last <= 1_000 && full.iter().all(|bytes| *bytes <= 1_000 && bytes + largest > 1_000), "{sizes:?}");
    assert_eq!(script.table.live_records(), 200);
    // In order, though cut.
    let fence_of = |number: u64| script.table.holds(&lock_key(&format!("lock-{number:03}")))[0].fence.0;
    assert!((1..=200).all(|number| fence_of(number) == number));
}

#[test]
fn expiries_and_waits_cut_by_a_full_batch_go_on_in_the_next() {
    let limits = Limits { batch_bytes_max: 400, ..Limits::default() };
    let mut script = Script::new(7, limits, &Residue::default());
    for number in 1..=60 {
        script.run(&format!("{number} acquire - lock-{number:03} ttl=1000"));
        script.run(&format!("{} acquire - lock-{number:03} ttl=90000 wait={}", 1_000 + number, 1_000 + number % 2));
    }
    drain_all(&mut script);
    assert_eq!(script.arbiter.waiting(), 60);
    script.run("time 1000");
    script.decide(false, None);
    script.apply();
    let sizes = drain_all(&mut script);
    assert!(sizes.len() > 5 && sizes.iter().all(|bytes| *bytes <= 400), "{sizes:?}");
    assert_eq!(script.arbiter.waiting(), 0);
    assert!(script.table.all_holds().all(|hold| hold.deadline == LeaseTime(91_000)));
    assert_eq!(script.table.live_records(), 60);
}

#[test]
fn a_request_whose_records_fit_no_batch_is_too_large() {
    // No single hold is that large: a lock with hundreds of expired holds (as shared ones could be) is.
    let mut script = Script::new(7, Limits::default(), &Residue::default());
    let name = "n".repeat(1_000);
    script.run(&format!("1 acquire - {name}"));
    script.run("go");
    let hold = script.table.holds(&lock_key(&name))[0].clone();
    let records = (2..40).map(|fence| Record::Hold(crate::record::Hold { fence: Fence(fence), ..hold.clone() }));
    script.table.apply(2, 7, Batch { term: 7, time: LeaseTime(0), records: records.collect() });
    script.run("time 5000");
    script.run(&format!("2 acquire - {name}"));
    script.run("3 acquire - M");
    assert_eq!(script.run("go"), ["log M#40 until 6000", "2 TooLarge", "3 granted #40 ttl=1000 left=1000 fresh *"]);
}

#[test]
fn five_thousand_waiters_of_one_lock_are_served_one_batch_each_in_order() {
    let mut script = Script::new(7, Limits::default(), &Residue::default());
    script.run("1 acquire - L");
    for number in 2..=5_001 {
        script.run(&format!("{number} acquire o{number} L wait=300000 rid=R{number}"));
    }
    script.run("go");
    for number in 2..=5_001_u64 {
        script.run(&format!("{} release L #{}", 10_000 + number, number - 1));
        script.decide(false, None);
        let answers = &script.in_flight.as_ref().unwrap().answers;
        assert_eq!(answers.iter().map(|answer| answer.number.0).collect::<Vec<_>>(), [10_000 + number, number]);
        script.apply();
    }
    assert_eq!(script.arbiter.waiting(), 0);
}
