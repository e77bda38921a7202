//! One drain: the order of its work, the room in its batch, and every operation but acquire.

use super::view::{View, ViewMark, is_expired};
use super::{Arbiter, Decided, Drain, Now, Undo};
use crate::name::LockKey;
use crate::record::{BatchEncoder, DropReason, Hold, REQUEST_BYTES_MAX, Record};
use crate::request::{
    Answer, GiveBack, HeldBy, HolderView, LockView, Op, Outcome, Proof, Release, Renew, Renewal, Request,
    RequestNumber, WaiterView,
};
use crate::table::Table;
use crate::units::{Fence, Token, Ttl};

/// The most waiters that a reader is shown.
const WAITERS_SHOWN_MAX: usize = 100;

/// A drain in the making.
pub(super) struct Deciding<'a> {
    pub(super) arbiter: &'a mut Arbiter,
    pub(super) view: View<'a>,
    pub(super) now: Now,
    pub(super) token: &'a mut dyn FnMut() -> Token,
    pub(super) batch: BatchEncoder,
    /// Records at the head of the batch that no request asked for.
    pub(super) head_records: usize,
    answers: Vec<Answer>,
    decided: Vec<Decided>,
    overdue: Vec<RequestNumber>,
    undo: Vec<Undo>,
    expired: u64,
    pub(super) restated: u64,
}

/// A state of the drain to which it can go back.
pub(super) struct Mark {
    batch: BatchMark,
    view: ViewMark,
    answers_len: usize,
    undo_len: usize,
    expired: u64,
    restated: u64,
}

/// Where a batch stood.
#[derive(Clone, Copy)]
struct BatchMark {
    bytes: usize,
    records: usize,
}

/// Whether a piece of work went into the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// It did.
    Done,
    /// The batch has no room left for it; the next will.
    NotNow,
    /// No batch ever has room for it.
    Never,
}

impl<'a> Deciding<'a> {
    pub(super) fn new(
        arbiter: &'a mut Arbiter,
        table: &'a Table,
        now: Now,
        token: &'a mut dyn FnMut() -> Token,
    ) -> Self {
        let batch = BatchEncoder::new(arbiter.term, now.lease);
        Self {
            arbiter,
            view: View::new(table),
            now,
            token,
            batch,
            head_records: 0,
            answers: Vec::new(),
            decided: Vec::new(),
            overdue: Vec::new(),
            undo: Vec::new(),
            expired: 0,
            restated: 0,
        }
    }

    /// Waiters whose request is over leave silently; those whose wait is over are refused, unless the lock's last hold
    /// has just expired.
    pub(super) fn end_waits(&mut self) {
        let due = self.arbiter.queues.due(self.now.local);
        let (overdue, waited_out): (Vec<_>, Vec<_>) = due.into_iter().partition(|number| self.is_overdue(*number));
        for number in overdue {
            self.end_handle(number);
            self.overdue.push(number);
        }
        for number in waited_out {
            match self.whole(|this| this.end_wait(number)) {
                Fit::Done => {}
                Fit::NotNow => {
                    self.arbiter.cut = true;
                    return;
                }
                Fit::Never => self.refuse_waiting(number),
            }
        }
    }

    /// Decides the pending requests in order of arrival until the batch is full.
    pub(super) fn decide_pending(&mut self) {
        while let Some(request) = self.arbiter.pop_pending() {
            if request.ends <= self.now.local {
                self.overdue.push(request.number);
            } else {
                match self.whole(|this| this.decide_one(&request)) {
                    Fit::Done => {}
                    Fit::NotNow => {
                        self.arbiter.submit(request);
                        return;
                    }
                    Fit::Never => self.answer(request.number, self.waited_ms(&request), Outcome::TooLarge),
                }
            }
            self.undo.push(Undo::Pending(request));
        }
    }

    /// Serves free locks whose waiters could not be served when they became free.
    pub(super) fn serve_put_off(&mut self) {
        if self.is_held_off() || self.arbiter.put_off.is_empty() {
            return;
        }
        let locks: Vec<_> = self.arbiter.put_off.iter().cloned().collect();
        for lock in locks {
            if self.whole(|this| this.serve(&lock)) == Fit::NotNow {
                self.arbiter.cut = true;
                return;
            }
        }
    }

    /// Drops holds past their deadline that no request touched, and grants to their waiters.
    pub(super) fn sweep(&mut self) {
        let table = self.view.table();
        let mut swept = 0;
        for (lock, fence) in table.expired(self.now.lease) {
            if self.view.hold(lock, fence).is_none() {
                continue;
            }
            if swept == self.arbiter.limits.sweep_max || self.whole(|this| this.touch(lock)) == Fit::NotNow {
                self.arbiter.cut = self.batch.records() > 0;
                return;
            }
            swept += 1;
        }
    }

    /// Closes the drain.
    pub(super) fn finish(mut self, tick_due: bool) -> Drain {
        for answer in &mut self.answers {
            if let Outcome::Granted(grant) = &mut answer.outcome {
                grant.fresh &= !self.arbiter.claims.contains(&grant.fence);
            }
        }
        let tick = self.hold_off_ends() || (tick_due && self.view.table().needs_ticks());
        Drain {
            batch: (self.batch.records() > 0 || tick).then_some(self.batch),
            answers: self.answers,
            decided: self.decided,
            overdue: self.overdue,
            undo: self.undo,
            expired: self.expired,
            restated: self.restated,
        }
    }

    fn decide_one(&mut self, request: &Request) {
        match &request.op {
            Op::Acquire(acquire) => self.acquire(request, acquire),
            Op::Release(release) => self.release(request, release),
            Op::Renew(renew) => self.renew(request, renew),
            Op::GiveBack(give_back) => self.give_back(request, give_back),
            Op::Get(get) => self.get(request, &get.lock),
        }
    }

    fn release(&mut self, request: &Request, release: &Release) {
        self.expire(&release.lock);
        let holds = self.view.holds(&release.lock);
        match holds.iter().find(|hold| Some(hold.token) == release.token).map(|hold| hold.fence) {
            Some(fence) => {
                self.end(&release.lock, fence, DropReason::Released);
                self.answer_logged(request.number, self.waited_ms(request), Outcome::Released);
            }
            None => self.answer(request.number, self.waited_ms(request), Outcome::NotHolder),
        }
        self.serve(&release.lock);
    }

    fn renew(&mut self, request: &Request, renew: &Renew) {
        self.expire(&renew.lock);
        let proven = |hold: &&Hold| match &renew.proof {
            Proof::Token(token) => Some(hold.token) == *token,
            Proof::Owner(owner) => hold.owner.as_ref() == Some(owner),
        };
        let waited_ms = self.waited_ms(request);
        if let Some(hold) = self.view.holds(&renew.lock).iter().find(proven).cloned() {
            let renewed = self.prolong(hold, renew.ttl);
            let renewal = Renewal { fence: renewed.fence, ttl: renewed.ttl, left_ms: renewed.ttl.as_ms() };
            self.answer_logged(request.number, waited_ms, Outcome::Renewed(renewal));
        } else {
            self.answer(request.number, waited_ms, Outcome::NotHolder);
            self.serve(&renew.lock);
        }
    }

    fn give_back(&mut self, request: &Request, give_back: &GiveBack) {
        let GiveBack { lock, fence, term } = give_back;
        self.expire(lock);
        let waited_ms = self.waited_ms(request);
        let mine = *term == self.arbiter.term && !self.arbiter.is_claimed(*fence);
        if mine && self.view.hold(lock, *fence).is_some() {
            self.end(lock, *fence, DropReason::GivenBack);
            self.answer_logged(request.number, waited_ms, Outcome::GaveBack);
        } else {
            self.answer(request.number, waited_ms, Outcome::GaveBack);
        }
        self.serve(lock);
    }

    /// A read changes nothing: an expired hold is shown until it is dropped.
    fn get(&mut self, request: &Request, lock: &LockKey) {
        let waiters = self.arbiter.queues.in_order(lock).take(WAITERS_SHOWN_MAX);
        let view = LockView {
            holders: self.holders(lock),
            waiters: waiters
                .map(|waiter| WaiterView {
                    owner: waiter.acquire.owner.clone(),
                    waiting_ms: waiter.place.waiting_ms(self.now.local),
                })
                .collect(),
        };
        let nobody = view.holders.is_empty() && view.waiters.is_empty();
        let outcome = if nobody { Outcome::NotHeld } else { Outcome::Got(view) };
        self.answer(request.number, self.waited_ms(request), outcome);
    }

    /// A wait that is over: refused, unless the lock just became free for it.
    fn end_wait(&mut self, number: RequestNumber) {
        if let Some(lock) = self.arbiter.queues.of_request(number).map(|waiter| waiter.acquire.lock.clone()) {
            self.touch(&lock);
            self.refuse_waiting(number);
        }
    }

    /// Answers a request that still waits with `Held`.
    pub(super) fn refuse_waiting(&mut self, number: RequestNumber) {
        let Some(waiter) = self.arbiter.queues.of_request(number) else { return };
        let Some(handle) = waiter.handle(number) else { return };
        let (waited_ms, lock) = (self.now.local.ms_since(handle.arrived), waiter.acquire.lock.clone());
        self.end_handle(number);
        let held = self.held(&lock);
        self.answer(number, waited_ms, held);
    }

    fn is_overdue(&self, number: RequestNumber) -> bool {
        let handle = self.arbiter.queues.of_request(number).and_then(|waiter| waiter.handle(number));
        handle.is_some_and(|handle| handle.ends <= self.now.local)
    }

    fn end_handle(&mut self, number: RequestNumber) {
        let Some(before) = self.arbiter.queues.of_request(number).cloned() else { return };
        let (lock, place) = (before.acquire.lock.clone(), before.place);
        self.arbiter.queues.withdraw(number);
        let now_at = (before.handles.len() > 1).then_some(place);
        self.undo.push(Undo::Waiter { lock, now_at, before: Some(before) });
    }

    /// Drops what has expired on a lock and serves its waiters.
    fn touch(&mut self, lock: &LockKey) {
        self.expire(lock);
        self.serve(lock);
    }

    /// Drops what has expired on a lock.
    pub(super) fn expire(&mut self, lock: &LockKey) {
        let expired = |hold: &&Hold| is_expired(hold, self.now.lease);
        let fences: Vec<_> = self.view.holds(lock).iter().filter(expired).map(|hold| hold.fence).collect();
        for fence in fences {
            self.drop_expired(lock, fence);
        }
    }

    /// Drops a hold past its deadline.
    pub(super) fn drop_expired(&mut self, lock: &LockKey, fence: Fence) {
        self.end(lock, fence, DropReason::Expired);
        self.expired += 1;
    }

    /// Ends a hold, and the claim to it.
    pub(super) fn end(&mut self, lock: &LockKey, fence: Fence, reason: DropReason) {
        self.batch.push(&Record::Drop { lock: lock.clone(), fence, reason });
        self.view.remove(lock, fence);
        if self.arbiter.claims.remove(&fence) {
            self.undo.push(Undo::Unclaimed(fence));
        }
    }

    /// Lets a hold go on for `ttl` from now. Its fence is claimed: another answer carries it.
    pub(super) fn prolong(&mut self, hold: Hold, ttl: Ttl) -> Hold {
        let hold = Hold { ttl, deadline: self.now.lease.plus_ms(ttl.as_ms()), ..hold };
        self.put(hold.clone());
        self.claim(hold.fence);
        hold
    }

    pub(super) fn put(&mut self, hold: Hold) {
        self.batch.push(&Record::Hold(hold.clone()));
        self.view.put(hold);
    }

    pub(super) fn claim(&mut self, fence: Fence) {
        if self.arbiter.claims.insert(fence) {
            self.undo.push(Undo::Claimed(fence));
        }
    }

    pub(super) fn remember(&mut self, undo: Undo) {
        self.undo.push(undo);
    }

    /// Whether nothing is granted yet, since holders of an earlier lineage may still count on their TTLs.
    pub(super) fn is_held_off(&self) -> bool {
        self.now.lease < self.view.table().no_grant_before()
    }

    /// Whether lease time has passed the end of the hold-off and the log does not say so yet.
    fn hold_off_ends(&self) -> bool {
        self.view.table().hold_off_end().is_some() && !self.is_held_off()
    }

    pub(super) fn held(&self, lock: &LockKey) -> Outcome {
        let (holders, queue_len) = (self.holders(lock), self.arbiter.queues.len(lock));
        let hold_off_ms = self.view.table().no_grant_before().ms_since(self.now.lease);
        Outcome::Held(HeldBy { holders, queue_len, hold_off_ms })
    }

    fn holders(&self, lock: &LockKey) -> Vec<HolderView> {
        let show = |hold: &Hold| HolderView::of(hold, self.now.lease);
        self.view.holds(lock).iter().map(show).collect()
    }

    pub(super) fn waited_ms(&self, request: &Request) -> u64 {
        self.now.local.ms_since(request.arrived)
    }

    /// Answers a request that changes nothing itself.
    pub(super) fn answer(&mut self, number: RequestNumber, waited_ms: u64, outcome: Outcome) {
        self.answers.push(Answer { number, outcome, waited_ms });
        self.decided.push(Decided { number, logged: false });
    }

    /// Answers a request whose effect is in the batch.
    pub(super) fn answer_logged(&mut self, number: RequestNumber, waited_ms: u64, outcome: Outcome) {
        self.answers.push(Answer { number, outcome, waited_ms });
        self.decided.push(Decided { number, logged: true });
    }

    /// Does a piece of work that may not be split. If the batch has no room for it, everything it did is undone. An
    /// empty batch always has room, and so has one that no request has written to.
    fn whole(&mut self, work: impl FnOnce(&mut Self)) -> Fit {
        let mark = self.mark();
        work(self);
        let bytes = self.batch.len_bytes();
        let shared = mark.batch.records > self.head_records;
        let fit = if bytes - mark.batch.bytes > REQUEST_BYTES_MAX {
            Fit::Never
        } else if bytes > self.arbiter.limits.batch_bytes_max && shared && bytes > mark.batch.bytes {
            Fit::NotNow
        } else {
            Fit::Done
        };
        if fit != Fit::Done {
            self.roll_back(&mark);
        }
        fit
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            batch: BatchMark { bytes: self.batch.len_bytes(), records: self.batch.records() },
            view: self.view.mark(),
            answers_len: self.answers.len(),
            undo_len: self.undo.len(),
            expired: self.expired,
            restated: self.restated,
        }
    }

    pub(super) fn roll_back(&mut self, mark: &Mark) {
        self.batch.truncate(mark.batch.bytes, mark.batch.records);
        self.view.roll_back(mark.view);
        self.answers.truncate(mark.answers_len);
        self.decided.truncate(mark.answers_len);
        self.expired = mark.expired;
        self.restated = mark.restated;
        for undo in self.undo.split_off(mark.undo_len).into_iter().rev() {
            self.arbiter.undo(undo);
        }
    }
}
