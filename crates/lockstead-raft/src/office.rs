//! An office: the time in which this node leads in one term, and the one task that decides in it.
//!
//! Invariants
//! 1. An office serves one term. The next one starts in a higher term, after this one's task has ended.
//! 2. One batch is in flight. The next is decided after it was applied or surely refused.
//! 3. Within its term a batch is never given up: the office waits for openraft's answer as long as the term lasts.
//! 4. Every answer leaves after its drain's batch was applied or, without a batch, after a quorum round of this very
//!    term that was asked for after the decision.
//!
//! Sources: Ongaro, "Consensus: Bridging Theory and Practice" (2014), 6.4 for the quorum round (`ReadIndex`).

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockstead_core::lease_clock::ClockReading;
use lockstead_core::{
    Arbiter, Drain, GiveBack, LeaseClock, LeaseTime, Limits, LocalTime, LockKey, Now, Op, Request, RequestNumber,
};
use openraft::ReadPolicy;
use openraft::error::Fatal;
use openraft::impls::ProgressResponder;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::linger::Linger;
use crate::local_clock::LocalClock;
use crate::metrics::ReplicaMetrics;
use crate::plant::{self, Plant, planted};
use crate::platform::{ClockPair, Platform};
use crate::restating::RestatingRule;
use crate::store::StateMachine;
use crate::term::{Term, TermLost, quorum};
use crate::ticket::{Decision, Delivery, Letter, Note, Ticket};
use crate::types::{BatchBytes, Raft, TypeConfig};
use crate::verdict::{Verdict, verdict};

/// How long to wait before another quorum round is asked for after one that failed.
const QUORUM_RETRY: Duration = Duration::from_millis(20);
/// The most letters taken in at once.
const LETTERS_AT_ONCE: usize = 4_096;

/// What an office stands on; outlives it.
pub(crate) struct Ground<P: Platform> {
    pub(crate) platform: Arc<P>,
    pub(crate) raft: Raft,
    pub(crate) machine: StateMachine,
    pub(crate) local_clock: LocalClock,
    pub(crate) limits: Limits,
    pub(crate) tick_ms: u64,
    /// The maximum election timeout: the most lease time earned between two quorum answers.
    pub(crate) gap_max: Duration,
    pub(crate) metrics: ReplicaMetrics,
    pub(crate) restating: RestatingRule,
}

/// Why an office ended.
#[derive(Debug)]
pub(crate) enum OfficeEnd {
    /// Its term is over for this node.
    TermLost,
    /// openraft stopped; so must the process.
    Fatal(String),
}

impl From<TermLost> for OfficeEnd {
    fn from(_: TermLost) -> Self {
        Self::TermLost
    }
}

/// Where letters and notes for an office come in.
pub(crate) struct Mailbox {
    pub(crate) letters: mpsc::Receiver<Letter>,
    pub(crate) notes: mpsc::UnboundedReceiver<Note>,
}

/// The office of one term.
pub(crate) struct Office<P: Platform> {
    ground: Arc<Ground<P>>,
    term: Term,
    mailbox: Mailbox,
    arbiter: Arbiter,
    clock: LeaseClock,
    clocks: ClockPair,
    /// The clocks as lease time was read for the last decision: what is left of a hold counts from here.
    decided_at: ClockPair,
    elapsed_us: u64,
    tickets: HashMap<RequestNumber, (Ticket, LockKey)>,
    last_batch: Instant,
    linger: Linger,
    notes_numbered: u64,
}

/// Whether openraft took a batch.
enum Proposal {
    Applied,
    /// Surely not in the log, and never will be.
    Refused,
}

impl<P: Platform> Office<P> {
    /// Takes office in `term`: every earlier entry is applied here and a quorum answered in this very term before the
    /// clock's origin is read.
    pub(crate) async fn open(ground: Arc<Ground<P>>, mut term: Term, mailbox: Mailbox) -> Result<Self, OfficeEnd> {
        while !planted(Plant::OfficeOpensEarly) {
            let round = ground.raft.ensure_linearizable(ReadPolicy::ReadIndex);
            match term.hold(round).await? {
                Ok(read) if **read.committed_leader_id() == term.number() => break,
                Ok(_) => return Err(OfficeEnd::TermLost),
                Err(why) => tracing::debug!(term = term.number(), %why, "no quorum round yet"),
            }
            term.hold(sleep(QUORUM_RETRY)).await?;
        }
        term.check()?;
        Ok(Self::start(ground, term, mailbox))
    }

    fn start(ground: Arc<Ground<P>>, term: Term, mailbox: Mailbox) -> Self {
        let clocks = ground.platform.clocks();
        let base = ground.machine.with(|state| {
            assert!(state.is_complete(), "a leader that applied all committed entries has passed built_at");
            state.table.time()
        });
        let base = if planted(Plant::LeaseRestarts) { LeaseTime(0) } else { base };
        let gap_max_us = u64::try_from(ground.gap_max.as_micros()).unwrap_or(u64::MAX);
        ground.metrics.offices.inc();
        Self {
            arbiter: Arbiter::new(term.number(), ground.limits),
            clock: LeaseClock::start(base, 0, gap_max_us),
            ground,
            term,
            mailbox,
            clocks,
            decided_at: clocks,
            elapsed_us: 0,
            tickets: HashMap::new(),
            last_batch: Instant::now(),
            linger: Linger::default(),
            notes_numbered: 0,
        }
    }

    /// Decides until the term is over.
    pub(crate) async fn serve(&mut self) -> OfficeEnd {
        loop {
            if let Err(end) = self.step().await {
                return end;
            }
        }
    }

    async fn step(&mut self) -> Result<(), OfficeEnd> {
        self.receive().await?;
        let mut drain = self.decide();
        for number in drain.overdue.drain(..) {
            self.tickets.remove(&number);
        }
        match drain.batch.take() {
            Some(batch) => {
                self.ground.metrics.batch_records.observe(count(batch.records()));
                match self.propose(batch.into_bytes()).await {
                    Ok(Proposal::Applied) => self.deliver(drain),
                    Ok(Proposal::Refused) => self.begin_again(drain).await?,
                    Err(end) => {
                        self.leave_unknown(&drain);
                        return Err(end);
                    }
                }
            }
            None if drain.answers.is_empty() => {}
            None if planted(Plant::StaleDenial) => self.deliver(drain),
            None => {
                self.quorum_round().await?;
                self.deliver(drain);
            }
        }
        self.ground.metrics.waiting.set(i64::try_from(self.arbiter.waiting()).unwrap_or(i64::MAX));
        Ok(())
    }

    // ---- what comes in

    async fn receive(&mut self) -> Result<(), OfficeEnd> {
        let before = self.tickets.len();
        if !self.arbiter.has_pending() && !self.has_to_restate() {
            self.await_news().await?;
        }
        self.take_letters();
        let taken = self.tickets.len().saturating_sub(before);
        if taken > 0 {
            self.linger_for_more(taken).await?;
        }
        while let Ok(note) = self.mailbox.notes.try_recv() {
            self.take_note(note);
        }
        Ok(())
    }

    fn has_to_restate(&self) -> bool {
        self.ground.machine.with(|state| self.ground.restating.due(state)).is_some()
    }

    fn take_letters(&mut self) {
        for _ in 0..LETTERS_AT_ONCE {
            let Ok(letter) = self.mailbox.letters.try_recv() else { break };
            self.take_letter(letter);
        }
    }

    /// Waits a little for those who were just answered.
    async fn linger_for_more(&mut self, mut taken: usize) -> Result<(), OfficeEnd> {
        let Some((goal, most)) = self.linger.goal() else { return Ok(()) };
        let end = sleep(most);
        tokio::pin!(end);
        while taken < goal {
            tokio::select! {
                biased;
                () = self.term.lost() => return Err(OfficeEnd::TermLost),
                Some(letter) = self.mailbox.letters.recv() => {
                    self.take_letter(letter);
                    taken += 1;
                }
                () = &mut end => {
                    self.linger.missed();
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits for a letter, a note or the next moment at which something is due.
    async fn await_news(&mut self) -> Result<(), OfficeEnd> {
        loop {
            let wake = self.next_wake();
            let sample = Instant::now() + self.ground.gap_max / 3;
            tokio::select! {
                biased;
                () = self.term.lost() => return Err(OfficeEnd::TermLost),
                Some(letter) = self.mailbox.letters.recv() => {
                    self.take_letter(letter);
                    return Ok(());
                }
                Some(note) = self.mailbox.notes.recv() => {
                    self.take_note(note);
                    return Ok(());
                }
                () = sleep_until(wake.min(sample)) => {
                    self.read_lease_time();
                    if wake <= sample {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn take_letter(&mut self, letter: Letter) {
        if letter.ticket.is_withdrawn() {
            return;
        }
        let Letter { number, arrived, ends, op, ticket } = letter;
        self.tickets.insert(number, (ticket, op.lock().clone()));
        self.arbiter.submit(Request { number, arrived, ends, op });
    }

    fn take_note(&mut self, note: Note) {
        match note {
            Note::Withdrawn(number) => {
                self.arbiter.cancel(number);
                // A request whose batch is in flight is not the arbiter's to cancel; its ticket hears of the dead
                // caller.
                self.tickets.remove(&number);
            }
            Note::GiveBack(give_back) => self.submit_give_back(give_back),
            // The next look at the log finds it.
            Note::Restate => {}
        }
    }

    fn submit_give_back(&mut self, give_back: GiveBack) {
        if planted(Plant::DeadWaiterGranted) {
            return;
        }
        let now = self.ground.local_clock.now();
        // Numbers from the top down cannot meet those of letters, which count from 1 up.
        self.notes_numbered += 1;
        let number = RequestNumber(u64::MAX - self.notes_numbered);
        self.arbiter.submit(Request { number, arrived: now, ends: LocalTime(u64::MAX), op: Op::GiveBack(give_back) });
    }

    /// The moment at which something is due even if nobody writes.
    fn next_wake(&mut self) -> Instant {
        let now = Instant::now();
        let far = now + Duration::from_hours(1);
        let wait_end = self.arbiter.next_wait_end().map(|end| self.ground.local_clock.instant(end));
        let lease_now = self.read_lease_time();
        let (end, ticking) = self.ground.machine.with(|state| (state.table.next_end(), state.table.needs_ticks()));
        let expiry = end.map(|end| now + Duration::from_millis(end.ms_since(lease_now)));
        let tick = ticking.then(|| self.last_batch + Duration::from_millis(self.ground.tick_ms));
        [wait_end, expiry, tick].into_iter().flatten().min().unwrap_or(far)
    }

    // ---- what is decided

    fn decide(&mut self) -> Drain {
        loop {
            let drain = self.decide_once();
            if planted(Plant::WithdrawnProposed) {
                // Long enough for a request to be withdrawn in between now and then.
                std::thread::sleep(plant::PROPOSE_LAG);
            }
            let withdrawn = self.mark_logged(&drain);
            if withdrawn.is_empty() || planted(Plant::WithdrawnProposed) {
                return drain;
            }
            // Nothing was proposed yet, so what was decided together with a request that is gone is decided again.
            self.take_back(drain);
            for number in withdrawn {
                self.arbiter.cancel(number);
                self.tickets.remove(&number);
            }
        }
    }

    fn decide_once(&mut self) -> Drain {
        let now = Now {
            lease: self.read_lease_time(),
            local: self.ground.local_clock.now(),
            wall: self.ground.platform.wall(),
        };
        self.decided_at = self.clocks;
        let tick_due = self.last_batch.elapsed() >= Duration::from_millis(self.ground.tick_ms);
        let Self { ground, arbiter, .. } = self;
        ground.machine.with(|state| {
            let restating = ground.restating.due(state);
            arbiter.decide(&state.table, now, tick_due, restating, &mut || ground.platform.token())
        })
    }

    /// Marks what the drain is about to propose; gives the requests that were withdrawn before.
    fn mark_logged(&self, drain: &Drain) -> Vec<RequestNumber> {
        let logged = drain.decided.iter().filter(|decided| decided.logged);
        logged
            .filter(|decided| self.tickets.get(&decided.number).is_some_and(|(ticket, _)| !ticket.mark_logged()))
            .map(|decided| decided.number)
            .collect()
    }

    fn take_back(&mut self, drain: Drain) {
        for decided in drain.decided.iter().filter(|decided| decided.logged) {
            if let Some((ticket, _)) = self.tickets.get(&decided.number) {
                ticket.mark_queued();
            }
        }
        self.arbiter.take_back(drain);
    }

    /// Reads lease time, and the newest quorum answer into it.
    fn read_lease_time(&mut self) -> LeaseTime {
        let clocks = self.ground.platform.clocks();
        self.elapsed_us += clocks.us_since_at_least(self.clocks);
        self.clocks = clocks;
        let (quorum_age, sole_voter) = quorum(&self.ground.raft);
        let quorum_age_us = quorum_age.map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        let issued = self.clock.issue(ClockReading { elapsed_us: self.elapsed_us, quorum_age_us, sole_voter });
        if planted(Plant::LeaseRestarts) || planted(Plant::OfficeOpensEarly) {
            // Either clock starts behind the table, whose time never falls.
            return self.ground.machine.with(|state| state.table.time()).max(issued);
        }
        issued
    }

    // ---- what makes a decision stand

    async fn propose(&mut self, batch: Vec<u8>) -> Result<Proposal, OfficeEnd> {
        let started = Instant::now();
        let (responder, answer) = ProgressResponder::<TypeConfig, _>::complete_only();
        let write = self.ground.raft.write(BatchBytes(batch.into()));
        write.with_leader(self.term.committed()).responder(responder).await.map_err(|why| fatal(&why))?;
        let answer = if planted(Plant::BatchGivenUp) {
            let Ok(answer) = self.hold(timeout(plant::BATCH_PATIENCE, answer)).await? else {
                return Ok(Proposal::Refused);
            };
            answer
        } else {
            self.hold(answer).await?
        };
        self.ground.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
        let Ok(answer) = answer else {
            return Err(OfficeEnd::Fatal("openraft dropped a batch without an answer".to_owned()));
        };
        match verdict(&answer.map(|response| response.data)) {
            Verdict::Applied => {
                self.last_batch = Instant::now();
                Ok(Proposal::Applied)
            }
            Verdict::Refused => Ok(Proposal::Refused),
            Verdict::Unknown => {
                tracing::info!(term = self.term.number(), "the outcome of a batch is unknown");
                self.term.lost().await;
                Err(OfficeEnd::TermLost)
            }
        }
    }

    /// A batch was surely refused: if the term is still mine, its requests are decided afresh after the next quorum
    /// answer.
    async fn begin_again(&mut self, drain: Drain) -> Result<(), OfficeEnd> {
        self.take_back(drain);
        self.term.check()?;
        self.quorum_round().await
    }

    /// Returns once a quorum has answered in this term to a round asked for after this call.
    async fn quorum_round(&mut self) -> Result<(), OfficeEnd> {
        let ground = Arc::clone(&self.ground);
        loop {
            match self.hold(ground.raft.get_read_linearizer(ReadPolicy::ReadIndex)).await? {
                Ok(round) if **round.read_log_id().committed_leader_id() == self.term.number() => return Ok(()),
                Ok(_) => return Err(OfficeEnd::TermLost),
                Err(why) => tracing::debug!(term = self.term.number(), %why, "no quorum round"),
            }
            self.hold(sleep(QUORUM_RETRY)).await?;
        }
    }

    /// Waits for `future` while the term lasts, and goes on earning lease time meanwhile.
    async fn hold<F: Future>(&mut self, future: F) -> Result<F::Output, OfficeEnd> {
        tokio::pin!(future);
        loop {
            let sample = sleep(self.ground.gap_max / 3);
            tokio::select! {
                biased;
                output = &mut future => return Ok(output),
                () = self.term.lost() => return Err(OfficeEnd::TermLost),
                () = sample => {
                    self.read_lease_time();
                }
            }
        }
    }

    // ---- what goes out

    fn deliver(&mut self, drain: Drain) {
        let decided_at = self.decided_at;
        self.linger.answered(drain.answers.len(), self.mailbox.letters.len());
        self.ground.metrics.expiries.inc_by(drain.expired);
        self.ground.metrics.compaction.restated.inc_by(drain.restated);
        for answer in drain.answers {
            self.ground.metrics.count(&answer);
            let Some((ticket, lock)) = self.tickets.remove(&answer.number) else {
                continue;
            };
            let proposed_all_the_same = planted(Plant::WithdrawnProposed) && ticket.is_withdrawn();
            let decision = Decision { outcome: answer.outcome, waited_ms: answer.waited_ms, decided_at };
            let Err(Delivery::Decided(unread)) = ticket.deliver(Delivery::Decided(decision)) else { continue };
            if let Some(give_back) = unread.outcome.give_back(&lock)
                && !proposed_all_the_same
            {
                self.submit_give_back(give_back);
            }
        }
    }

    /// The term ended over a batch that may still commit: whatever was decided together with it is unknown.
    fn leave_unknown(&mut self, drain: &Drain) {
        for decided in &drain.decided {
            if let Some((ticket, _)) = self.tickets.remove(&decided.number) {
                // A caller that is gone needs no answer, and in the next term nothing is given back.
                let _ = ticket.deliver(Delivery::Unknown);
            }
        }
    }

    /// Tells every request that is left what it may count on.
    pub(crate) fn close(mut self) {
        self.mailbox.letters.close();
        while let Ok(letter) = self.mailbox.letters.try_recv() {
            letter.ticket.close();
        }
        for (_, (ticket, _)) in self.tickets.drain() {
            ticket.close();
        }
        self.ground.metrics.waiting.set(0);
    }
}

fn count(records: usize) -> f64 {
    f64::from(u32::try_from(records).unwrap_or(u32::MAX))
}

fn fatal(why: &Fatal<TypeConfig>) -> OfficeEnd {
    OfficeEnd::Fatal(format!("openraft stopped: {why}"))
}
