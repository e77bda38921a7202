//! A lock service in one copy, as the design describes it, with the faults that a checker has to find.

use std::collections::VecDeque;

use lockstead_chaos::dice::Dice;
use lockstead_chaos::history::{Answer, Op, Proof};

/// What is wrong with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Holds end after a third of their TTL.
    EarlyEnd,
    /// Now and then a lock is granted although it is held.
    SecondHolder,
    /// Now and then a grant has a lower fence than the last.
    LowerFence,
    /// Now and then a hold forgets the request that it was granted to.
    RequestForgotten,
    /// Holds end seconds after their TTL.
    LateEnd,
    /// Waiters whose clients went away keep their place.
    DeadWaiter,
    /// Reads and denials now and then show the hold before the present one.
    StaleRead,
}

/// A request at the service.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) call: usize,
    pub(crate) op: Op,
    pub(crate) arrived_us: u64,
}

#[derive(Clone, Debug)]
struct Hold {
    fence: u64,
    token: String,
    owner: Option<String>,
    request_id: Option<String>,
    ttl_ms: u64,
    /// In lease time.
    end_us: u64,
    granted_to: usize,
    claimed: bool,
}

/// One lock of the service. All times are lease times, but for `arrived_us` and `at_us`.
#[derive(Debug)]
pub(crate) struct Lock {
    bug: Bug,
    hold: Option<Hold>,
    previous_fence: Option<u64>,
    queue: VecDeque<Vec<Request>>,
}

/// The moment of a decision, in real time and in lease time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at_us: u64,
    pub(crate) lease_us: u64,
}

/// What every decision can use.
pub(crate) struct Desk<'a> {
    pub(crate) now: Moment,
    pub(crate) dice: &'a mut Dice,
    pub(crate) last_fence: &'a mut u64,
    /// The answers given, by call.
    pub(crate) answers: Vec<(usize, Answer)>,
}

impl Lock {
    pub(crate) fn new(bug: Bug) -> Self {
        Self { bug, hold: None, previous_fence: None, queue: VecDeque::new() }
    }

    /// Ends what is past its end, and serves the queue.
    pub(crate) fn sweep(&mut self, desk: &mut Desk<'_>) {
        let grace_us = if self.bug == Bug::LateEnd { 3_000_000 } else { 0 };
        if self.hold.as_ref().is_some_and(|hold| hold.end_us + grace_us <= desk.now.lease_us) {
            self.end();
        }
        self.serve(desk);
    }

    pub(crate) fn decide(&mut self, request: Request, desk: &mut Desk<'_>) {
        if self.bug == Bug::RequestForgotten && desk.dice.chance(30) {
            self.hold.iter_mut().for_each(|hold| hold.request_id = None);
        }
        if !matches!(request.op, Op::Get) {
            self.sweep(desk);
        }
        match &request.op {
            Op::Acquire { .. } => self.acquire(request, desk),
            Op::Release { token } => {
                let is_mine = self.hold.as_ref().is_some_and(|hold| hold.token == *token);
                desk.answers.push((request.call, if is_mine { Answer::Released } else { Answer::NotHolder }));
                if is_mine {
                    self.end();
                }
                self.serve(desk);
            }
            Op::Renew { by, ttl_ms } => {
                let is_mine = self.hold.as_ref().is_some_and(|hold| match by {
                    Proof::Token(token) => hold.token == *token,
                    Proof::Owner(owner) => hold.owner.as_ref() == Some(owner),
                });
                let answer = if is_mine { self.renew(*ttl_ms, desk.now) } else { Answer::NotHolder };
                desk.answers.push((request.call, answer));
            }
            Op::Get => {
                let (holders, waiters) = (self.shown(desk.dice), self.queue.len() as u64);
                let nobody = holders.is_empty() && waiters == 0;
                let answer = if nobody { Answer::NotHeld } else { Answer::Got { holders, waiters } };
                desk.answers.push((request.call, answer));
            }
        }
    }

    /// The wait of a request is over.
    pub(crate) fn wait_ends(&mut self, call: usize, desk: &mut Desk<'_>) {
        self.sweep(desk);
        if self.forget(call) {
            let answer = self.held(desk.dice);
            desk.answers.push((call, answer));
        }
    }

    /// The connection of a request is gone. A grant that nobody claimed may be given back.
    pub(crate) fn cancel(&mut self, call: usize, desk: &mut Desk<'_>) {
        let is_unclaimed = |hold: &Hold| hold.granted_to == call && !hold.claimed;
        if self.bug == Bug::DeadWaiter {
            return;
        }
        if !self.forget(call) && self.hold.as_ref().is_some_and(is_unclaimed) && desk.dice.chance(50) {
            self.end();
        }
        self.sweep(desk);
    }

    fn acquire(&mut self, request: Request, desk: &mut Desk<'_>) {
        let Op::Acquire { ttl_ms, wait_ms, owner, request_id, .. } = &request.op else { return };
        let (ttl_ms, wait_ms) = (*ttl_ms, *wait_ms);
        if let Some(place) = request_id.as_ref().and_then(|_| self.place_of(request_id.as_ref())) {
            self.queue[place].push(request);
            return;
        }
        let hold = self.hold.as_mut();
        if let Some(hold) = hold.filter(|hold| request_id.is_some() && hold.request_id == *request_id) {
            hold.claimed = true;
            let answer = granted(hold, desk.now.lease_us, 0, false);
            desk.answers.push((request.call, answer));
        } else if self.hold.as_ref().is_some_and(|hold| owner.is_some() && hold.owner == *owner) {
            self.renew(ttl_ms, desk.now);
            let hold = self.hold.as_ref().expect("it was just renewed");
            desk.answers.push((request.call, granted(hold, desk.now.lease_us, 0, true)));
        } else if self.hold.is_none() || self.bug == Bug::SecondHolder && desk.dice.chance(20) {
            self.grant(&[request], desk);
        } else if wait_ms > 0 {
            self.queue.push_back(vec![request]);
        } else {
            let answer = self.held(desk.dice);
            desk.answers.push((request.call, answer));
        }
    }

    fn serve(&mut self, desk: &mut Desk<'_>) {
        while self.hold.is_none() {
            let Some(waiter) = self.queue.pop_front() else { return };
            self.grant(&waiter, desk);
        }
    }

    /// One grant for all tries of a request, and for the waiters of the same owner.
    fn grant(&mut self, tries: &[Request], desk: &mut Desk<'_>) {
        let first = tries.last().expect("a request has one try at least");
        let Op::Acquire { ttl_ms, owner, request_id, .. } = first.op.clone() else { return };
        let is_same = |waiter: &Vec<Request>| owner.is_some() && owner_of(&waiter[0].op) == owner.as_ref();
        let others: Vec<Request> = self.queue.iter().filter(|waiter| is_same(waiter)).flatten().cloned().collect();
        self.queue.retain(|waiter| !is_same(waiter));
        let ttl_ms = others.last().map_or(ttl_ms, |other| ttl_of(&other.op));
        let step = 1 + desk.dice.below(3);
        let is_lower = self.bug == Bug::LowerFence && desk.dice.chance(20);
        let fence = if is_lower { desk.last_fence.saturating_sub(step) } else { *desk.last_fence + step };
        *desk.last_fence = fence;
        let token = format!("{:032x}", desk.dice.next());
        let claimed = tries.len() > 1 || !others.is_empty();
        let end_us = self.end_us(ttl_ms, desk.now);
        let hold = Hold { fence, token, owner, request_id, ttl_ms, end_us, granted_to: tries[0].call, claimed };
        let shown = Hold { end_us: desk.now.lease_us + ttl_ms * 1_000, ..hold.clone() };
        let mut answer = |request: &Request, renewed| {
            let waited_ms = (desk.now.at_us - request.arrived_us) / 1_000;
            desk.answers.push((request.call, granted(&shown, desk.now.lease_us, waited_ms, renewed)));
        };
        for request in tries {
            answer(request, false);
        }
        for request in &others {
            answer(request, true);
        }
        self.hold = Some(hold);
    }

    fn renew(&mut self, ttl_ms: u64, now: Moment) -> Answer {
        let end_us = self.end_us(ttl_ms, now);
        let Some(hold) = &mut self.hold else { return Answer::NotHolder };
        (hold.ttl_ms, hold.end_us, hold.claimed) = (ttl_ms, end_us, true);
        Answer::Renewed { fence: hold.fence, ttl_ms, expires_in_ms: ttl_ms, waited_ms: 0 }
    }

    fn end_us(&self, ttl_ms: u64, now: Moment) -> u64 {
        now.lease_us + if self.bug == Bug::EarlyEnd { ttl_ms * 333 } else { ttl_ms * 1_000 }
    }

    fn end(&mut self) {
        self.previous_fence = self.hold.take().map(|hold| hold.fence).or(self.previous_fence);
    }

    fn held(&self, dice: &mut Dice) -> Answer {
        Answer::Held { holders: self.shown(dice), queue_len: self.queue.len() as u64 }
    }

    fn shown(&self, dice: &mut Dice) -> Vec<u64> {
        match (self.bug, self.previous_fence) {
            (Bug::StaleRead, Some(fence)) if dice.chance(20) => vec![fence],
            _ => self.hold.iter().map(|hold| hold.fence).collect(),
        }
    }

    fn place_of(&self, request_id: Option<&String>) -> Option<usize> {
        self.queue.iter().position(|tries| request_of(&tries[0].op) == request_id)
    }

    /// Takes one try out of the queue; whether it was there.
    fn forget(&mut self, call: usize) -> bool {
        let Some(place) = self.queue.iter().position(|tries| tries.iter().any(|request| request.call == call)) else {
            return false;
        };
        self.queue[place].retain(|request| request.call != call);
        self.queue.retain(|tries| !tries.is_empty());
        true
    }
}

fn granted(hold: &Hold, lease_us: u64, waited_ms: u64, renewed: bool) -> Answer {
    let expires_in_ms = hold.end_us.saturating_sub(lease_us) / 1_000;
    let (token, ttl_ms) = (hold.token.clone(), hold.ttl_ms);
    Answer::Granted { token, fence: hold.fence, ttl_ms, expires_in_ms, waited_ms, renewed }
}

fn owner_of(op: &Op) -> Option<&String> {
    match op {
        Op::Acquire { owner, .. } => owner.as_ref(),
        _ => None,
    }
}

fn request_of(op: &Op) -> Option<&String> {
    match op {
        Op::Acquire { request_id, .. } => request_id.as_ref(),
        _ => None,
    }
}

fn ttl_of(op: &Op) -> u64 {
    match op {
        Op::Acquire { ttl_ms, .. } | Op::Renew { ttl_ms, .. } => *ttl_ms,
        _ => 0,
    }
}
