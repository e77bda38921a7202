//! Random histories against a naive map of locks: what must hold whatever comes, and whatever is refused.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::record::{DropReason, Hold};

const LOCKS: [&str; 4] = ["K", "L", "M", "other/L"];

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// An operation, as a script line without its number.
    Submit(String),
    /// The clocks go on, in milliseconds.
    Pass(u64),
    /// A request is cancelled: the n-th newest.
    Cancel(u64),
    /// A batch is decided and applied, after having been refused so many times; `Some` restates what was last stated at
    /// or before the n-th newest entry, in about so many bytes.
    Go(u8, Option<(u64, usize)>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => acquire().prop_map(Step::Submit),
        3 => (lock(), 1_u64..12, 1_u64..6).prop_map(|(lock, fence, ttl)| Step::Submit(format!("renew {lock} #{fence} ttl={}", ttl * 200))),
        3 => (lock(), 1_u64..25).prop_map(|(lock, fence)| Step::Submit(format!("release {lock} #{fence}"))),
        1 => (lock(), owner()).prop_map(|(lock, owner)| Step::Submit(format!("renew {lock} {owner} ttl=500"))),
        1 => (lock(), 1_u64..25, 6_u64..8).prop_map(|(lock, fence, term)| Step::Submit(format!("giveback {lock} #{fence} term={term}"))),
        1 => lock().prop_map(|lock| Step::Submit(format!("get {lock}"))),
        2 => (0_u64..500).prop_map(Step::Pass),
        1 => (0_u64..8).prop_map(Step::Cancel),
        5 => (0_u8..3, prop::option::of((0_u64..6, 0_usize..400))).prop_map(|(refusals, restating)| Step::Go(refusals, restating)),
    ]
}

fn lock() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&LOCKS[..])
}

fn owner() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["A", "B"][..])
}

fn acquire() -> impl Strategy<Value = String> {
    let owner = prop_oneof![3 => Just("-"), 1 => owner()];
    let rid = prop_oneof![2 => Just(""), 1 => Just(" rid=R queued=700"), 1 => Just(" rid=S")];
    let times = (1_u64..8, prop_oneof![Just(0_u64), 1_u64..3_000], 1_u64..4_000);
    (lock(), owner, rid, times).prop_map(|(lock, owner, rid, (ttl, wait_ms, ends_ms))| {
        format!("acquire {owner} {lock} ttl={} wait={wait_ms} ends={ends_ms}{rid}", ttl * 200)
    })
}

/// The naive model: one map, and what every batch and answer must respect.
#[derive(Default)]
struct Model {
    holds: BTreeMap<LockKey, Hold>,
    fence_max: u64,
    answered: BTreeSet<u64>,
    /// Requests by number: the lock that an acquire without a request id wants, and when it arrived.
    plain_acquires: BTreeMap<u64, (LockKey, u64)>,
    /// Fences and tokens for whose release or give-back somebody asked.
    may_end: BTreeSet<u64>,
    /// Requests that waited before the drain: none of them is passed in it.
    queued: BTreeSet<u64>,
}

impl Model {
    fn submitted(&mut self, number: u64, request_line: &str, now_ms: u64) {
        let words: Vec<_> = request_line.split_whitespace().collect();
        match words[0] {
            "acquire" if option(&words, "rid").is_none() => {
                self.plain_acquires.insert(number, (lock_key(words[2]), now_ms));
            }
            "release" | "giveback" => {
                self.may_end.insert(words[2][1..].parse().unwrap());
            }
            _ => {}
        }
    }

    fn take(&mut self, now: LeaseTime, record: Record) {
        match record {
            Record::Hold(hold) => {
                assert_eq!(hold.deadline, now.plus_ms(hold.ttl.as_ms()), "the TTL counts from now");
                if let Some(before) = self.holds.get(&hold.lock) {
                    assert_eq!((before.fence, before.token), (hold.fence, hold.token), "two live holds of one lock");
                    assert!(now < before.deadline, "an expired hold was renewed");
                } else {
                    assert!(hold.fence.0 > self.fence_max, "a fence did not rise");
                    self.fence_max = hold.fence.0;
                }
                self.holds.insert(hold.lock.clone(), hold);
            }
            Record::Drop { lock, fence, reason } => {
                let hold = self.holds.remove(&lock).expect("a drop of nothing");
                assert_eq!(hold.fence, fence);
                assert_eq!(now >= hold.deadline, reason == DropReason::Expired, "{reason:?} at {now:?}: {hold:?}");
                assert!(reason == DropReason::Expired || self.may_end.contains(&fence.0), "nobody ended #{fence:?}");
            }
            Record::Restate(Live::Hold(hold)) => {
                assert!(now < hold.deadline, "an expired hold was restated");
                assert_eq!(self.holds.get(&hold.lock), Some(&hold), "what was restated is not in force");
            }
        }
    }

    fn answer(&mut self, answer: &Answer, ended: &BTreeSet<u64>, arbiter: &Arbiter) {
        assert!(self.answered.insert(answer.number.0), "answered twice: {answer:?}");
        let Outcome::Granted(grant) = &answer.outcome else { return };
        let Some(hold) = self.holds.values().find(|hold| hold.fence == grant.fence) else {
            // Ended in the same drain, after this answer, by somebody who had its token.
            assert!(ended.contains(&grant.fence.0), "a grant of nothing: {grant:?}");
            return;
        };
        assert_eq!(hold.token, grant.token);
        assert!(grant.fresh || arbiter.is_claimed(grant.fence), "a second answer without a claim: {grant:?}");
        let Some((lock, arrived_ms)) = self.plain_acquires.get(&answer.number.0) else { return };
        if !grant.renewed {
            let passed = arbiter.queues.in_order(lock).find(|waiter| {
                let waits_since = waiter.place.waiting_ms(LocalTime(u64::MAX >> 1));
                let earlier = waits_since > (u64::MAX >> 1) - arrived_ms;
                earlier && waiter.handles.iter().all(|handle| self.queued.contains(&handle.number.0))
            });
            assert!(passed.is_none(), "{answer:?} passed {passed:?}");
        }
    }
}

struct World {
    script: Script,
    model: Model,
    submitted: u64,
    cancelled: BTreeSet<u64>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let script = Script::new(7, limits, &Residue::default());
        Self { script, model: Model::default(), submitted: 0, cancelled: BTreeSet::new() }
    }

    fn submit(&mut self, request_line: &str) {
        self.submitted += 1;
        self.model.submitted(self.submitted, request_line, self.script.now_ms);
        self.script.run(&format!("{} {request_line}", self.submitted));
    }

    fn cancel(&mut self, newest: u64) {
        let number = self.submitted.saturating_sub(newest);
        if !self.model.answered.contains(&number) {
            self.cancelled.insert(number);
        }
        self.script.run(&format!("cancel {number}"));
    }

    /// Decides and applies until nothing is pending.
    fn go(&mut self, refusals: u8, restating: Option<(u64, usize)>) {
        for round in 0.. {
            assert!(round < 100, "the arbiter makes no progress");
            let restating = restating
                .map(|(newest, bytes_max)| Restating { upto: self.script.index.saturating_sub(newest), bytes_max });
            self.refuse(refusals, restating);
            self.model.queued = self.script.arbiter.queues.numbers().map(|number| number.0).collect();
            let printed = self.script.decide(false, restating);
            self.check_restated(restating);
            self.check_drain(&printed);
            self.script.apply();
            self.check_rest();
            if !self.script.arbiter.has_pending() {
                return;
            }
        }
    }

    fn refuse(&mut self, times: u8, restating: Option<Restating>) {
        let before = memory(&self.script.arbiter);
        let mut printed = None;
        for _ in 0..times {
            let now = self.script.decide(false, restating);
            assert_eq!(printed.get_or_insert_with(|| now.clone()), &now);
            self.script.run("refuse");
            assert_eq!(memory(&self.script.arbiter), before, "a refused drain left a trace");
        }
    }

    /// What is restated stands first, is old enough, and is the oldest but for what has expired.
    fn check_restated(&self, restating: Option<Restating>) {
        let drain = self.script.in_flight.as_ref().unwrap();
        let Some(batch) = drain.batch.clone() else { return };
        let records = Batch::decode(&batch.into_bytes()).unwrap().records;
        let is_restate = |record: &&Record| matches!(record, Record::Restate(_));
        let mut newest_restated = 0;
        for record in records.iter().filter(is_restate) {
            let Record::Restate(Live::Hold(hold)) = record else { continue };
            let stated_at = self.script.table.stated_at(&hold.lock, hold.fence).expect("it is live");
            assert!(stated_at <= restating.unwrap().upto && stated_at >= newest_restated);
            newest_restated = stated_at;
        }
        let head = records.iter().take_while(|record| !matches!(record, Record::Hold(_)));
        assert_eq!(head.filter(is_restate).count() as u64, drain.restated, "a restatement after a grant or renewal");
    }

    fn check_drain(&mut self, printed: &[String]) {
        let drain = self.script.in_flight.as_ref().unwrap();
        let now = LeaseTime(self.script.now_ms);
        let batch = drain.batch.clone().map(|batch| {
            assert!(batch.len_bytes() <= self.script.arbiter.limits.batch_bytes_max || batch.records() <= 4);
            Batch::decode(&batch.into_bytes()).unwrap()
        });
        let records = batch.map_or_else(Vec::new, |batch| batch.records);
        let released = |record: &Record| match record {
            Record::Drop { fence, reason, .. } if *reason != DropReason::Expired => Some(fence.0),
            _ => None,
        };
        let ended = records.iter().filter_map(released).collect();
        for record in records {
            self.model.take(now, record);
            let live = |namespace| self.model.holds.keys().filter(|lock| lock.namespace() == namespace).count() as u64;
            assert!(live("default").max(live("other")) <= self.script.arbiter.limits.locks_max, "{printed:?}");
        }
        for answer in &drain.answers {
            self.model.answer(answer, &ended, &self.script.arbiter);
        }
        for overdue in &drain.overdue {
            assert!(self.model.answered.insert(overdue.0), "{overdue:?} ended twice");
        }
    }

    fn check_rest(&self) {
        assert_eq!(self.script.table.live_records(), self.model.holds.len());
        for hold in self.script.table.all_holds() {
            assert_eq!(self.model.holds.get(&hold.lock), Some(hold));
        }
        for lock in LOCKS.map(lock_key) {
            let waiters = self.script.arbiter.queues.len(&lock);
            assert!(waiters == 0 || !self.script.table.holds(&lock).is_empty(), "{waiters} wait for a free lock");
        }
    }

    /// Every request is answered once, cancelled, or still there.
    fn close(self) {
        let open: BTreeSet<_> = self.script.arbiter.close().into_iter().map(|number| number.0).collect();
        assert!(open.is_disjoint(&self.model.answered) && open.is_disjoint(&self.cancelled));
        let known: BTreeSet<_> = &(&open | &self.model.answered) | &self.cancelled;
        assert!((1..=self.submitted).all(|number| known.contains(&number)), "requests were lost");
    }
}

/// All that an arbiter remembers, in a fixed order.
fn memory(arbiter: &Arbiter) -> String {
    let queues: Vec<_> =
        LOCKS.map(lock_key).iter().flat_map(|lock| arbiter.queues.in_order(lock)).map(|w| format!("{w:?}")).collect();
    let claims: BTreeSet<_> = arbiter.claims.iter().collect();
    let places: BTreeMap<_, _> = arbiter.pending_places.iter().collect();
    let gauges = (arbiter.waiting(), arbiter.next_wait_end());
    format!("{:?}\n{places:?}\n{queues:#?}\n{claims:?}\n{:?}\n{gauges:?}", arbiter.pending, arbiter.put_off)
}

fn limits() -> impl Strategy<Value = Limits> {
    (1_u64..4, prop_oneof![Just(65_536_usize), 100_usize..600], 1_usize..4)
        .prop_map(|(locks_max, batch_bytes_max, sweep_max)| Limits { locks_max, batch_bytes_max, sweep_max })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_the_promises_of_a_lock(limits in limits(), steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new(limits);
        for step in steps {
            match step {
                Step::Submit(line) => world.submit(&line),
                Step::Pass(ms) => world.script.now_ms += ms,
                Step::Cancel(newest) => world.cancel(newest),
                Step::Go(refusals, restating) => world.go(refusals, restating),
            }
        }
        world.close();
    }

    #[test]
    fn a_refused_drain_with_cancels_and_arrivals_meanwhile_is_as_if_it_never_was(
        before in prop::collection::vec(step(), 1..60),
        drained in prop::collection::vec(acquire(), 1..10),
        meanwhile in prop::collection::vec(acquire(), 0..4),
        cancels in prop::collection::vec(0_u64..16, 0..6),
    ) {
        let mut outcomes = Vec::new();
        let restating = Some(Restating { upto: u64::MAX, bytes_max: 150 });
        for refused in [true, false] {
            let mut world = World::new(Limits { locks_max: 3, ..Limits::default() });
            for step in &before {
                match step {
                    Step::Submit(line) => world.submit(line),
                    Step::Pass(ms) => world.script.now_ms += ms,
                    Step::Cancel(newest) => world.cancel(*newest),
                    Step::Go(_, restating) => world.go(0, *restating),
                }
            }
            for line in &drained {
                world.submit(line);
            }
            if refused {
                world.script.decide(false, restating);
            }
            for line in &meanwhile {
                world.submit(line);
            }
            for newest in &cancels {
                world.cancel(*newest);
            }
            if refused {
                world.script.run("refuse");
            }
            let printed = world.script.decide(false, restating);
            outcomes.push((printed, memory(&world.script.arbiter)));
        }
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}
