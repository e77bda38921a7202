//! What a held lock costs in memory, and that neither renewals nor new names add to it.
//!
//! One test: it reads the resident memory of its process, where nothing else may happen meanwhile.

use std::ops::Range;

use lockstead_core::{
    Batch, BatchEncoder, DropReason, Fence, Hold, LeaseTime, LockKey, LockName, Metadata, Mode, Record, Table, Token,
    Ttl, WallTime,
};

/// The most that a held lock may take in the table, in bytes: names of 24 bytes, a token, no owner.
const HOLD_BYTES_MAX: u64 = 400;
/// Records of one batch.
const RECORDS: usize = 64;

fn lock(number: u64) -> LockKey {
    LockKey::in_default(&LockName::parse(&format!("lock-{number:019}")).expect("within bounds"))
}

fn hold(number: u64, deadline: u64) -> Hold {
    Hold {
        lock: lock(number),
        fence: Fence(number + 1),
        token: Token(u128::from(number).to_be_bytes()),
        owner: None,
        request_id: None,
        mode: Mode::Exclusive,
        permits: 1,
        session: None,
        ttl: Ttl::DEFAULT,
        deadline: LeaseTime(deadline),
        delay_ms: 0,
        acquired_at: WallTime(1_700_000_000_000),
        metadata: Metadata::default(),
    }
}

/// Applies one record for each number, decoded from batches as a replay does.
fn apply(table: &mut Table, numbers: Range<u64>, record: impl Fn(u64) -> Record) {
    let numbers: Vec<_> = numbers.collect();
    for numbers in numbers.chunks(RECORDS) {
        let mut encoder = BatchEncoder::new(1, LeaseTime(0));
        for number in numbers {
            encoder.push(&record(*number));
        }
        table.apply(numbers[0], 1, Batch::decode(&encoder.into_bytes()).expect("it was encoded"));
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib * 1_024
}

#[test]
fn a_held_lock_takes_less_than_its_share_of_memory_for_good() {
    let mut table = Table::default();
    apply(&mut table, 0..100_000, |number| Record::Hold(hold(number, 60_000 + number)));
    let before_bytes = resident_bytes();
    apply(&mut table, 100_000..200_000, |number| Record::Hold(hold(number, 60_000 + number)));
    let grown_bytes = resident_bytes().saturating_sub(before_bytes);
    assert!(grown_bytes / 100_000 <= HOLD_BYTES_MAX, "{} bytes for each hold", grown_bytes / 100_000);

    apply(&mut table, 0..200_000, |number| Record::Hold(hold(number, 90_000 + number)));
    let renewed_bytes = resident_bytes().saturating_sub(before_bytes);
    assert!(
        renewed_bytes <= grown_bytes + grown_bytes / 4,
        "{renewed_bytes} bytes after renewals, {grown_bytes} before"
    );

    for round in 1..3 {
        let (old, new) = ((round - 1) * 200_000, round * 200_000);
        for part in 0..10 {
            let (from, to) = (part * 20_000, (part + 1) * 20_000);
            apply(&mut table, old + from..old + to, |number| Record::Drop {
                lock: lock(number),
                fence: Fence(number + 1),
                reason: DropReason::Released,
            });
            apply(&mut table, new + from..new + to, |number| Record::Hold(hold(number, 90_000 + number)));
        }
        let bytes = resident_bytes().saturating_sub(before_bytes);
        assert!(bytes <= grown_bytes + grown_bytes / 4, "{bytes} bytes on other names, {grown_bytes} before");
    }
    assert_eq!(table.live_records(), 200_000);
}
