//! Faults planted on purpose, so that the tests that look for faults can show that they find real ones.
//!
//! `LOCKSTEAD_PLANT` names one of them; only builds with debug assertions read it. Each is a mistake that a change
//! could make: one place goes wrong, and everything else is as it should be.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lockstead_core::{Batch, DropReason, Fence, Live, LockKey, Record, Table};
use openraft::EntryPayload;
use openraft::storage::IOFlushed;
use tokio::time::Instant;

use crate::OpenError;
use crate::types::{BatchBytes, Entry, TypeConfig};

const VARIABLE: &str = "LOCKSTEAD_PLANT";

/// How much later than it says the log is written ([`Plant::AckBeforeSync`]).
pub(crate) const WRITE_LAG: Duration = Duration::from_millis(300);
/// How long a batch is waited for ([`Plant::BatchGivenUp`]).
pub(crate) const BATCH_PATIENCE: Duration = Duration::from_millis(150);
/// How long lies between deciding and proposing ([`Plant::WithdrawnProposed`]).
pub(crate) const PROPOSE_LAG: Duration = Duration::from_millis(2);
/// Half the time a follower applies nothing, for so long ([`Plant::OfficeOpensEarly`]).
const APPLY_PAUSE: Duration = Duration::from_millis(300);
/// How much faster than a clock a node's own clock runs ([`Plant::FollowerExpires`]).
const OWN_CLOCK_RATE: u32 = 2;

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A node that does not lead ends holds by its own clock, which runs fast, without a log entry.
    FollowerExpires,
    /// A new office starts its lease clock at zero: time stands still until that has caught up with the table.
    LeaseRestarts,
    /// Refusals and reads are answered without a quorum round.
    StaleDenial,
    /// A batch is given up within its term, and its requests are decided afresh, though it may still commit.
    BatchGivenUp,
    /// A request whose connection died is neither cancelled nor is its grant given back.
    DeadWaiterGranted,
    /// A node that does not lead forgets the request ids of holds.
    RequestIdForgotten,
    /// The log says that entries are durable a while before it writes them.
    AckBeforeSync,
    /// Nothing is synced: journal and database are left to the system.
    NoSync,
    /// An office opens without a quorum round, before everything committed is applied.
    OfficeOpensEarly,
    /// A request withdrawn between decision and proposal is proposed all the same, and its grant is not given back.
    WithdrawnProposed,
}

const NAMED: [(&str, Plant); 10] = [
    ("follower-expires", Plant::FollowerExpires),
    ("lease-restarts", Plant::LeaseRestarts),
    ("stale-denial", Plant::StaleDenial),
    ("batch-given-up", Plant::BatchGivenUp),
    ("dead-waiter-granted", Plant::DeadWaiterGranted),
    ("request-id-forgotten", Plant::RequestIdForgotten),
    ("ack-before-sync", Plant::AckBeforeSync),
    ("no-sync", Plant::NoSync),
    ("office-opens-early", Plant::OfficeOpensEarly),
    ("withdrawn-proposed", Plant::WithdrawnProposed),
];

static PLANTED: OnceLock<Option<Plant>> = OnceLock::new();

/// Whether this fault is planted; never in a release build.
pub(crate) fn planted(plant: Plant) -> bool {
    cfg!(debug_assertions) && PLANTED.get() == Some(&Some(plant))
}

/// Reads which fault is planted, and says so loudly. A release build does not look.
///
/// # Errors
/// [`OpenError::Plant`] for a fault that does not exist.
pub(crate) fn sow() -> Result<(), OpenError> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    let said = std::env::var_os(VARIABLE).unwrap_or_default();
    let plant = parse(&said.to_string_lossy())?;
    PLANTED.get_or_init(|| plant);
    if let Some(plant) = plant {
        tracing::warn!(?plant, "A FAULT IS PLANTED ({VARIABLE}): this node breaks its promises on purpose");
    }
    Ok(())
}

fn parse(said: &str) -> Result<Option<Plant>, OpenError> {
    if said.is_empty() {
        return Ok(None);
    }
    let found = NAMED.iter().find(|(name, _)| *name == said);
    found
        .map(|(_, plant)| Some(*plant))
        .ok_or_else(|| OpenError::Plant { said: said.to_owned(), allowed: NAMED.map(|(name, _)| name).join(", ") })
}

/// [`Plant::FollowerExpires`]: ends the holds whose TTL has passed by this node's own clock since it applied them.
pub(crate) fn end_by_own_clock(table: &mut Table, now: Instant) {
    /// By which log entry and when each hold was last applied here. A process is one node.
    static APPLIED: Mutex<BTreeMap<(LockKey, Fence), (u64, Instant)>> = Mutex::new(BTreeMap::new());
    let mut before = APPLIED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut applied = BTreeMap::new();
    let mut records = Vec::new();
    for (stated_at, lock, fence) in table.by_statement() {
        let key = (lock.clone(), fence);
        let known = before.get(&key).filter(|(index, _)| *index == stated_at).map(|(_, since)| *since);
        let since = known.unwrap_or(now);
        let passed_ms = ((now - since) * OWN_CLOCK_RATE).as_millis();
        if table.holds(lock).iter().any(|hold| hold.fence == fence && passed_ms >= u128::from(hold.ttl.as_ms())) {
            records.push(Record::Drop { lock: lock.clone(), fence, reason: DropReason::Expired });
        }
        applied.insert(key, (stated_at, since));
    }
    *before = applied;
    let (term, time) = (0, table.time());
    table.apply(0, term, Batch { term, time, records });
}

/// [`Plant::OfficeOpensEarly`]: how long a follower waits now before it applies an entry.
pub(crate) fn until_applying(now: Instant) -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let round = APPLY_PAUSE * 2;
    let passed = now.saturating_duration_since(*FIRST.get_or_init(|| now));
    let into_round = Duration::from_nanos(u64::try_from(passed.as_nanos() % round.as_nanos()).unwrap_or(0));
    APPLY_PAUSE.saturating_sub(into_round)
}

/// [`Plant::RequestIdForgotten`]: the entry without the request ids of its holds.
pub(crate) fn without_request_ids(mut entry: Entry) -> Entry {
    if let EntryPayload::Normal(bytes) = &mut entry.payload
        && let Ok(mut batch) = Batch::decode(&bytes.0)
    {
        for record in &mut batch.records {
            if let Record::Hold(hold) | Record::Restate(Live::Hold(hold)) = record {
                hold.request_id = None;
            }
        }
        *bytes = BatchBytes(batch.encode().into());
    }
    entry
}

/// [`Plant::AckBeforeSync`]: says that an append is durable; what is left says nothing when it is.
pub(crate) fn acknowledge(append: IOFlushed<TypeConfig>) -> IOFlushed<TypeConfig> {
    append.io_completed(Ok(()));
    IOFlushed::noop()
}

#[cfg(test)]
mod tests {
    use lockstead_core::{Hold, LeaseTime, LockName, Metadata, Mode, RequestId, Token, Ttl, WallTime};

    use super::*;
    use crate::types::LogId;

    fn hold() -> Hold {
        Hold {
            lock: LockKey::in_default(&LockName::parse("a").unwrap()),
            fence: Fence(1),
            token: Token([1; 16]),
            owner: None,
            request_id: Some(RequestId::parse("0123456789abcdef").unwrap()),
            mode: Mode::Exclusive,
            permits: 1,
            session: None,
            ttl: Ttl::DEFAULT,
            deadline: LeaseTime(30_000),
            delay_ms: 0,
            acquired_at: WallTime(0),
            metadata: Metadata::default(),
        }
    }

    fn batch() -> Batch {
        Batch { term: 1, time: LeaseTime(0), records: vec![Record::Hold(hold())] }
    }

    #[test]
    fn a_fast_clock_ends_a_hold_at_half_its_ttl_unless_it_is_stated_again() {
        let (mut table, start) = (Table::default(), Instant::now());
        let live_at = |table: &mut Table, ms| {
            end_by_own_clock(table, start + Duration::from_millis(ms));
            table.live_records()
        };
        table.apply(1, 1, batch());
        assert_eq!(live_at(&mut table, 0), 1);
        assert_eq!(live_at(&mut table, 14_999), 1);
        table.apply(2, 1, batch());
        assert_eq!(live_at(&mut table, 15_000), 1);
        assert_eq!(live_at(&mut table, 29_999), 1);
        assert_eq!(live_at(&mut table, 30_000), 0);
    }

    #[test]
    fn a_follower_applies_only_half_of_the_time() {
        let start = Instant::now();
        let pauses_ms =
            [0, 100, 299, 300, 599, 600, 750].map(|ms| until_applying(start + Duration::from_millis(ms)).as_millis());
        assert_eq!(pauses_ms, [300, 200, 1, 0, 0, 300, 150]);
    }

    #[test]
    fn request_ids_are_forgotten_and_nothing_else() {
        let entry = Entry {
            log_id: LogId::new_term_index(1, 1),
            payload: EntryPayload::Normal(BatchBytes(batch().encode().into())),
        };
        let EntryPayload::Normal(bytes) = without_request_ids(entry).payload else { panic!("no batch") };
        let without = Hold { request_id: None, ..hold() };
        assert_eq!(Batch::decode(&bytes.0).unwrap(), Batch { records: vec![Record::Hold(without)], ..batch() });
    }

    #[test]
    fn each_fault_is_planted_by_its_name_and_none_without_one() {
        for (name, plant) in NAMED {
            assert_eq!(parse(name).unwrap(), Some(plant));
        }
        assert_eq!(parse("").unwrap(), None);
    }

    #[test]
    fn an_unknown_fault_is_refused_with_the_names_of_all() {
        let why = parse("Stale-Denial").unwrap_err().to_string();
        assert!(why.contains("\"Stale-Denial\""), "{why}");
        assert!(NAMED.iter().all(|(name, _)| why.contains(name)), "{why}");
    }
}
