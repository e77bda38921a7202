use proptest::prelude::*;

use super::*;
use crate::name::{LockName, Metadata};
use crate::record::{DropReason, Mode};
use crate::units::{Token, Ttl, WallTime};

fn lock(name: &str) -> LockKey {
    LockKey::in_default(&LockName::parse(name).unwrap())
}

fn hold(name: &str, fence: u64, deadline: u64) -> Hold {
    Hold {
        lock: lock(name),
        fence: Fence(fence),
        token: Token([7; 16]),
        owner: None,
        request_id: None,
        mode: Mode::Exclusive,
        permits: 1,
        session: None,
        ttl: Ttl::from_request(Some(100 + i64::try_from(deadline).unwrap()), Ttl::MAX_MS_DEFAULT).unwrap(),
        deadline: LeaseTime(deadline),
        delay_ms: 0,
        acquired_at: WallTime(0),
        metadata: Metadata::default(),
    }
}

fn drop_of(name: &str, fence: u64) -> Record {
    Record::Drop { lock: lock(name), fence: Fence(fence), reason: DropReason::Released }
}

/// Applies each batch (time, records) in term 1 at indexes from 1.
fn table_of(batches: Vec<(u64, Vec<Record>)>) -> Table {
    let mut table = Table::default();
    for (index, (time, records)) in (1..).zip(batches) {
        assert_eq!(table.apply(index, 1, Batch { term: 1, time: LeaseTime(time), records }), Applied::Done);
    }
    table
}

#[test]
fn a_hold_is_in_force_until_it_is_dropped_whatever_the_time() {
    let table = table_of(vec![(10, vec![Record::Hold(hold("L", 1, 20))]), (5_000, vec![])]);
    assert_eq!(table.holds(&lock("L")), [hold("L", 1, 20)]);
    assert_eq!(table.time(), LeaseTime(5_000));
    assert_eq!(table.next_end(), Some(LeaseTime(20)));
    assert_eq!((table.live_records(), table.holds_in("default"), table.holds_in("other")), (1, 1, 0));
    let table = table_of(vec![(10, vec![Record::Hold(hold("L", 1, 20))]), (11, vec![drop_of("L", 1)])]);
    assert_eq!(table.holds(&lock("L")), []);
    assert_eq!((table.live_records(), table.holds_in("default"), table.next_end()), (0, 0, None));
}

#[test]
fn a_hold_stated_again_is_replaced_whole_and_counted_once() {
    for again in [Record::Hold(hold("L", 1, 90)), Record::Restate(Live::Hold(hold("L", 1, 90)))] {
        let table = table_of(vec![(1, vec![Record::Hold(hold("L", 1, 20))]), (2, vec![again])]);
        assert_eq!(table.holds(&lock("L")), [hold("L", 1, 90)]);
        assert_eq!((table.live_records(), table.holds_in("default")), (1, 1));
        assert_eq!(table.expired(LeaseTime(89)).count(), 0);
        assert_eq!(table.expired(LeaseTime(90)).collect::<Vec<_>>(), [(&lock("L"), Fence(1))]);
        assert_eq!(table.stated_at(&lock("L"), Fence(1)), Some(2));
        assert_eq!(table.by_statement().collect::<Vec<_>>(), [(2, &lock("L"), Fence(1))]);
    }
}

#[test]
fn a_drop_of_an_absent_hold_is_nothing() {
    let table = table_of(vec![(1, vec![Record::Hold(hold("L", 2, 20)), drop_of("L", 1), drop_of("M", 2)])]);
    assert_eq!(table.holds(&lock("L")), [hold("L", 2, 20)]);
    assert_eq!(table.live_records(), 1);
}

#[test]
fn a_batch_of_another_term_changes_nothing_not_even_time() {
    let mut table = table_of(vec![(1, vec![Record::Hold(hold("L", 1, 20))])]);
    let before = table.clone();
    let batch = Batch { term: 1, time: LeaseTime(99), records: vec![drop_of("L", 1), Record::Hold(hold("M", 9, 9))] };
    assert_eq!(table.apply(2, 2, batch.clone()), Applied::Void);
    assert_eq!(table, before);
    assert_eq!(table.apply(2, 1, batch), Applied::Done);
    assert_ne!(table, before);
}

#[test]
fn time_last_fence_and_longest_ttl_never_fall_and_are_raised_by_restates() {
    let long = Record::Restate(Live::Hold(hold("L", 9, 800)));
    let table = table_of(vec![(50, vec![long]), (40, vec![Record::Hold(hold("M", 3, 20)), drop_of("L", 9)])]);
    let residue = table.residue();
    assert_eq!((residue.time, residue.last_fence, residue.ttl_max_ms), (LeaseTime(50), Fence(9), 900));
    assert_eq!(Table::from_residue(&residue).residue(), residue);
    assert_eq!(Table::from_residue(&residue).live_records(), 0);
}

#[test]
fn retired_nodes_stay_retired_and_outlive_the_table() {
    let mut table = Table::default();
    table.retire(3);
    table.retire(3);
    assert!(table.is_retired(3) && !table.is_retired(4));
    let table = Table::from_residue(&table.residue());
    assert!(table.is_retired(3) && table.retired().iter().eq(&[3]));
}

#[test]
fn the_longest_delay_outlives_its_hold() {
    let delayed = Record::Hold(Hold { delay_ms: 40, ..hold("L", 1, 20) });
    let table = table_of(vec![(1, vec![delayed, drop_of("L", 1), Record::Hold(hold("L", 2, 20))])]);
    assert_eq!(table.residue().delay_max_ms, 40);
}

#[test]
fn live_bytes_are_what_restating_all_live_records_takes() {
    let long = Hold { metadata: Metadata::parse(vec![("k".to_owned(), "v".repeat(900))]).unwrap(), ..hold("L", 1, 20) };
    let restated_bytes = |hold: &Hold| {
        let again = Record::Restate(Live::Hold(hold.clone()));
        (Batch { term: 1, time: LeaseTime(0), records: vec![again] }.encode().len() - crate::record::BATCH_HEADER_BYTES)
            as u64
    };
    let mut batches = vec![(1, vec![Record::Hold(long.clone()), Record::Hold(hold("M", 2, 20))])];
    assert_eq!(table_of(batches.clone()).live_bytes(), restated_bytes(&long) + restated_bytes(&hold("M", 2, 20)));
    batches.push((2, vec![Record::Hold(hold("L", 1, 70_000))]));
    let of_both = restated_bytes(&hold("L", 1, 70_000)) + restated_bytes(&hold("M", 2, 20));
    assert_eq!(table_of(batches.clone()).live_bytes(), of_both);
    assert_eq!(table_of(batches.clone()).oldest_statement(), Some(1));
    batches.push((3, vec![drop_of("M", 2), drop_of("M", 2), drop_of("L", 1)]));
    assert_eq!((table_of(batches.clone()).live_bytes(), table_of(batches).oldest_statement()), (0, None));
}

#[test]
fn equal_tables_may_have_come_about_in_different_ways() {
    let direct = table_of(vec![(9, vec![]), (9, vec![Record::Hold(hold("L", 2, 20)), Record::Hold(hold("M", 3, 20))])]);
    let detour = table_of(vec![
        (9, vec![Record::Hold(hold("K", 1, 20)), Record::Hold(hold("M", 3, 20))]),
        (9, vec![drop_of("K", 1), Record::Hold(hold("L", 2, 20)), Record::Hold(hold("M", 3, 20))]),
    ]);
    assert_eq!(direct, detour);
    let stated_later =
        table_of(vec![(9, vec![Record::Hold(hold("M", 3, 20))]), (9, vec![Record::Hold(hold("L", 2, 20))])]);
    assert_ne!(direct, stated_later);
    assert_ne!(stated_later, direct);
}

#[test]
fn the_label_lies_below_the_oldest_live_statement() {
    let mut batches = vec![(1, vec![Record::Hold(hold("L", 1, 20))]), (2, vec![Record::Hold(hold("M", 2, 20))])];
    assert_eq!(table_of(batches.clone()).label(2), 0);
    batches.push((3, vec![Record::Restate(Live::Hold(hold("L", 1, 20)))]));
    assert_eq!(table_of(batches.clone()).label(3), 1);
    batches.push((4, vec![drop_of("M", 2)]));
    assert_eq!(table_of(batches.clone()).label(4), 2);
    batches.push((5, vec![drop_of("L", 1)]));
    assert_eq!(table_of(batches).label(8), 8);
}

#[test]
fn ticks_are_needed_while_a_hold_lives_and_until_the_log_has_passed_a_hold_off() {
    let hold_off = Residue { no_grant_before: LeaseTime(100), ..Residue::default() };
    let mut table = Table::from_residue(&hold_off);
    assert_eq!(table.no_grant_before(), LeaseTime(100));
    for (index, time, end) in [(1, 0, Some(100)), (2, 99, Some(100)), (3, 100, None), (4, 101, None)] {
        table.apply(index, 1, Batch { term: 1, time: LeaseTime(time), records: Vec::new() });
        let end = end.map(LeaseTime);
        assert_eq!((table.hold_off_end(), table.next_end(), table.needs_ticks()), (end, end, end.is_some()));
    }
    assert_eq!(table.label(5), 5);
    assert!(table_of(vec![(500, vec![Record::Hold(hold("L", 1, 20))])]).needs_ticks());
}

/// A history of log entries: (term of the entry, batch).
type History = Vec<(u64, Batch)>;

fn record() -> impl Strategy<Value = Record> {
    let name = prop::sample::select(&["K", "L", "M"][..]);
    (name, 1_u64..6, 0_u64..50, 0_u8..6).prop_map(|(name, fence, deadline, kind)| match kind {
        0..=1 => Record::Hold(hold(name, fence, deadline)),
        2 => Record::Restate(Live::Hold(hold(name, fence, deadline))),
        _ => drop_of(name, fence),
    })
}

fn history() -> impl Strategy<Value = History> {
    let entry = (prop::collection::vec(record(), 0..5), 0_u64..100, prop::bool::weighted(0.15));
    prop::collection::vec(entry, 1..40).prop_map(|entries| {
        entries
            .into_iter()
            .map(|(records, time, void)| (3 + u64::from(void), Batch { term: 3, time: LeaseTime(time), records }))
            .collect()
    })
}

fn replay(table: &mut Table, history: &History, from: u64, to: u64) {
    for index in from..=to {
        let (term, batch) = &history[usize::try_from(index - 1).unwrap()];
        table.apply(index, *term, batch.clone());
    }
}

/// Whether every table built from a snapshot labelled by `label` at `built_at` equals a full replay from there on.
fn converges(history: &History, capture: impl Fn(&Table, u64) -> (Residue, u64)) -> bool {
    let last = history.len() as u64;
    (0..=last).all(|built_at| {
        let mut full = Table::default();
        replay(&mut full, history, 1, built_at);
        let (residue, label) = capture(&full, built_at);
        let mut installed = Table::from_residue(&residue);
        replay(&mut installed, history, label + 1, built_at);
        (built_at..=last).all(|index| {
            if index > built_at {
                replay(&mut full, history, index, index);
                replay(&mut installed, history, index, index);
            }
            installed == full && installed.label(index) == full.label(index)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_and_the_log_after_its_label_give_the_table_of_a_full_replay(history in history()) {
        prop_assert!(converges(&history, |table, last_applied| (table.residue(), table.label(last_applied))));
    }

    #[test]
    fn the_orders_and_counts_are_those_of_the_holds(history in history()) {
        let mut table = Table::default();
        replay(&mut table, &history, 1, history.len() as u64);
        let mut deadlines: Vec<_> = table.all_holds().map(|hold| (hold.deadline, hold.fence, hold.lock.clone())).collect();
        deadlines.sort();
        let ordered = table.deadlines.iter().map(|(deadline, fence, slot)| (*deadline, *fence, table.lock_at(*slot).clone()));
        let mut ordered: Vec<_> = ordered.collect();
        // Histories of this test grant one fence in several locks, which no arbiter does.
        ordered.sort();
        prop_assert_eq!(deadlines, ordered);
        prop_assert_eq!(table.holds_in("default"), table.live_records() as u64);
        let oldest = table.all_holds().filter_map(|hold| table.stated_at(&hold.lock, hold.fence)).min();
        prop_assert_eq!(oldest.map_or(99, |stated_at| stated_at - 1), table.label(99));
    }
}

/// What the wrong readings of a snapshot would do to this history: a long hold, a newer one that ends, a late tick.
fn telling_history() -> History {
    let batches = [(50, vec![]), (10, vec![Record::Hold(hold("L", 7, 99))]), (20, vec![drop_of("L", 7)]), (30, vec![])];
    batches.into_iter().map(|(time, records)| (3, Batch { term: 3, time: LeaseTime(time), records })).collect()
}

#[test]
fn the_wrong_readings_of_a_snapshot_would_diverge() {
    let history = telling_history();
    assert!(converges(&history, |table, last_applied| (table.residue(), table.label(last_applied))));
    // Labelled with the last applied entry, a snapshot loses every hold.
    assert!(!converges(&history, |table, last_applied| (table.residue(), last_applied)));
    // A label at the oldest statement itself, not below it, loses that one.
    assert!(!converges(&history, |table, last| (table.residue(), (table.label(last) + 1).min(last))));
    // Time, last fence and longest TTL outlive the entries that raised them.
    let without = |change: fn(&mut Residue)| {
        move |table: &Table, last_applied: u64| {
            let mut residue = table.residue();
            change(&mut residue);
            (residue, table.label(last_applied))
        }
    };
    assert!(!converges(&history, without(|residue| residue.time = LeaseTime(30))));
    assert!(!converges(&history, without(|residue| residue.last_fence = Fence(0))));
    assert!(!converges(&history, without(|residue| residue.ttl_max_ms = 0)));
}
