//! With restating, the log behind a snapshot's label stays below a bound however long old holds live, and no more is
//! written for it than once again what requests write.

use std::collections::HashMap;

use lockstead_core::{
    Acquire, Arbiter, Batch, Fence, LeaseTime, Limits, LocalTime, LockKey, LockName, Metadata, Now, Op, Proof, Record,
    Release, Renew, Request, RequestNumber, Restating, Table, Token, Ttl, WallTime,
};
use proptest::prelude::*;

/// When the log is cleaned, and how fast.
#[derive(Clone, Copy, Debug)]
struct Cleaning {
    /// The tail that is left alone, in bytes, if it is more than twice the live records.
    tail_bytes_min: u64,
    /// The share of each batch, in bytes.
    bytes_max: usize,
}

/// Which statement of a hold the label lies below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Newest,
    /// The wrong reading: that of its grant.
    First,
}

/// One request; locks by number.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// A lock that is kept for an hour.
    Keep(u8),
    Renew(u8),
    Release(u8),
    /// A lock of a name never used again, taken and released.
    Cycle,
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        2 => (0_u8..30).prop_map(Ask::Keep),
        1 => (0_u8..30).prop_map(Ask::Renew),
        1 => (0_u8..30).prop_map(Ask::Release),
        6 => Just(Ask::Cycle),
    ]
}

/// One node's log, and what it adds up to.
struct Log {
    cleaning: Option<Cleaning>,
    label: Label,
    arbiter: Arbiter,
    table: Table,
    /// Bytes of each entry, from index 1.
    entry_bytes: Vec<u64>,
    first_stated: HashMap<(LockKey, Fence), u64>,
    asked: u64,
    tokens: u128,
    most: Most,
    asked_bytes: u64,
    restated_bytes: u64,
}

/// The most of each that the history saw.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    tail_bytes: u64,
    live_bytes: u64,
    live_records: u64,
    /// Of what requests add to one batch.
    asked_bytes: u64,
    record_bytes: u64,
}

impl Log {
    fn run(cleaning: Option<Cleaning>, label: Label, history: &[Vec<Ask>]) -> Self {
        let mut log = Self {
            cleaning,
            label,
            arbiter: Arbiter::new(1, Limits::default()),
            table: Table::default(),
            entry_bytes: Vec::new(),
            first_stated: HashMap::new(),
            asked: 0,
            tokens: 0,
            most: Most::default(),
            asked_bytes: 0,
            restated_bytes: 0,
        };
        for asks in history {
            for ask in asks {
                log.ask(*ask);
            }
            log.write();
        }
        log
    }

    fn ask(&mut self, ask: Ask) {
        let kept = |number: u8| key(&format!("kept-{number}"));
        let hour = Ttl::from_request(Some(3_600_000), Ttl::MAX_MS_DEFAULT).expect("within bounds");
        let acquire = |lock: LockKey| {
            Op::Acquire(Acquire {
                lock,
                ttl: hour,
                wait_ms: 0,
                queued_ms: 0,
                owner: None,
                request_id: None,
                metadata: Metadata::default(),
            })
        };
        let token = |lock: &LockKey| self.table.holds(lock).first().map(|hold| hold.token);
        let op = match ask {
            Ask::Keep(number) => acquire(kept(number)),
            Ask::Renew(number) => {
                let lock = kept(number);
                Op::Renew(Renew { proof: Proof::Token(token(&lock)), lock, ttl: hour })
            }
            Ask::Release(number) => {
                let lock = kept(number);
                Op::Release(Release { token: token(&lock), lock })
            }
            Ask::Cycle => {
                let lock = key(&format!("cycle-{}", self.asked));
                self.submit(acquire(lock.clone()));
                self.write();
                let token = self.table.holds(&lock).first().map(|hold| hold.token);
                Op::Release(Release { lock, token })
            }
        };
        self.submit(op);
    }

    fn submit(&mut self, op: Op) {
        self.asked += 1;
        let number = RequestNumber(self.asked);
        self.arbiter.submit(Request { number, arrived: LocalTime(self.asked), ends: LocalTime(u64::MAX), op });
    }

    fn write(&mut self) {
        let restating = self.restating();
        let now = Now { lease: LeaseTime(self.asked), local: LocalTime(self.asked), wall: WallTime(0) };
        let tokens = &mut self.tokens;
        let drain = self.arbiter.decide(&self.table, now, true, restating, &mut || {
            *tokens += 1;
            Token(tokens.to_be_bytes())
        });
        if let Some(batch) = drain.batch {
            self.append(&batch.into_bytes());
        }
        self.most.tail_bytes = self.most.tail_bytes.max(self.tail_bytes());
    }

    /// What lies further back than the tail may be long is restated, and nothing else: a record that was stated since
    /// then would be restated more often than once in that many bytes.
    fn restating(&self) -> Option<Restating> {
        let Cleaning { tail_bytes_min, bytes_max } = self.cleaning?;
        let tail_bytes_max = tail_bytes_min.max(2 * self.table.live_bytes());
        let mut tail_bytes = 0;
        let kept = self.entry_bytes.iter().rev().take_while(|entry_bytes| {
            tail_bytes += **entry_bytes;
            tail_bytes <= tail_bytes_max
        });
        let upto = (self.entry_bytes.len() - kept.count()) as u64;
        Some(Restating { upto, bytes_max })
    }

    fn append(&mut self, bytes: &[u8]) {
        let batch = Batch::decode(bytes).expect("it was encoded");
        let index = self.entry_bytes.len() as u64 + 1;
        let again = Batch {
            records: batch.records.iter().filter(|record| matches!(record, Record::Restate(_))).cloned().collect(),
            ..batch.clone()
        };
        let header_bytes = lockstead_core::record::BATCH_HEADER_BYTES;
        let restated_bytes = (again.encode().len() - header_bytes) as u64;
        let asked_bytes = bytes.len() as u64 - restated_bytes;
        for record in &batch.records {
            if let Record::Hold(hold) = record {
                self.first_stated.entry((hold.lock.clone(), hold.fence)).or_insert(index);
                self.most.record_bytes = self.most.record_bytes.max(bytes.len() as u64);
            }
        }
        self.entry_bytes.push(bytes.len() as u64);
        self.table.apply(index, 1, batch);
        self.asked_bytes += asked_bytes;
        self.restated_bytes += restated_bytes;
        self.most.asked_bytes = self.most.asked_bytes.max(asked_bytes);
        self.most.live_bytes = self.most.live_bytes.max(self.table.live_bytes());
        self.most.live_records = self.most.live_records.max(self.table.live_records() as u64);
    }

    fn tail_bytes(&self) -> u64 {
        let applied = self.entry_bytes.len() as u64;
        let label = match self.label {
            Label::Newest => self.table.label(applied),
            Label::First => {
                let stated = |hold: &lockstead_core::Hold| self.first_stated[&(hold.lock.clone(), hold.fence)];
                self.table.all_holds().map(stated).min().map_or(applied, |stated_at| stated_at - 1)
            }
        };
        self.entry_bytes[usize::try_from(label).expect("histories are short")..].iter().sum()
    }

    /// The most that the tail may be: what starts the cleaning, one batch past it, and all that is written until each
    /// live record was restated once.
    fn tail_bound_bytes(&self) -> u64 {
        let cleaning = self.cleaning.expect("without cleaning there is no bound");
        let restated_at_once = (cleaning.bytes_max as u64 / self.most.record_bytes).max(1);
        let batches = self.most.live_records / restated_at_once + 1;
        let start = cleaning.tail_bytes_min.max(2 * self.most.live_bytes);
        start + self.most.live_bytes + (batches + 1) * self.most.asked_bytes
    }
}

fn key(name: &str) -> LockKey {
    LockKey::in_default(&LockName::parse(name).expect("within bounds"))
}

fn history() -> impl Strategy<Value = Vec<Vec<Ask>>> {
    prop::collection::vec(prop::collection::vec(ask(), 0..4), 50..400)
}

fn cleaning() -> impl Strategy<Value = Cleaning> {
    (200_u64..4_000, 1_usize..600).prop_map(|(tail_bytes_min, bytes_max)| Cleaning { tail_bytes_min, bytes_max })
}

fn histories() -> u32 {
    let full = std::env::var("LOCKSTEAD_TEST_SCALE").is_ok_and(|scale| scale == "full");
    if full { 20_000 } else { 200 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_tail_stays_below_its_bound_and_cleaning_writes_no_more_than_requests(
        history in history(),
        cleaning in cleaning(),
    ) {
        let log = Log::run(Some(cleaning), Label::Newest, &history);
        let bound_bytes = log.tail_bound_bytes();
        prop_assert!(log.most.tail_bytes <= bound_bytes, "{:?} above {bound_bytes}", log.most);
        let allowed = log.asked_bytes + log.most.live_bytes;
        prop_assert!(log.restated_bytes <= allowed, "{} restated, {} asked", log.restated_bytes, log.asked_bytes);
    }
}

/// One hold for an hour while cycles pass.
fn long_hold() -> Vec<Vec<Ask>> {
    std::iter::once(vec![Ask::Keep(1)]).chain((0..2_000).map(|_| vec![Ask::Cycle])).collect()
}

#[test]
fn one_old_hold_keeps_the_log_for_ever_unless_it_is_restated_and_its_newest_statement_counts() {
    let cleaning = Cleaning { tail_bytes_min: 1_000, bytes_max: 100 };
    let bound_bytes = Log::run(Some(cleaning), Label::Newest, &long_hold()).tail_bound_bytes();
    assert!(bound_bytes < 2_000, "{bound_bytes}");
    let tail_bytes = |cleaning, label| Log::run(cleaning, label, &long_hold()).most.tail_bytes;
    assert!(tail_bytes(Some(cleaning), Label::Newest) <= bound_bytes);
    assert!(tail_bytes(None, Label::Newest) > 100 * bound_bytes / 2);
    assert!(tail_bytes(Some(cleaning), Label::First) > 100 * bound_bytes / 2);
}
