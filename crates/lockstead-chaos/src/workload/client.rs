//! One client: how it asks, asks again, and counts on what it was told.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Ground;
use super::endpoints::Endpoint;
use super::lanes::Lane;
use super::moves;
use super::transport::{Ask, Patience, Told, Transport};
use crate::clock::{as_ms, ms, now};
use crate::dice::Dice;
use crate::history::{Answer, Drift, Lost, Op};

/// How often a client asks again when it was not told what became of its request.
const TRIES: usize = 7;

/// A hold as its client counts on it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) lock: String,
    pub(super) token: String,
    pub(super) fence: u64,
    pub(super) ttl_ms: u64,
    /// Until when its client may count on it.
    pub(super) deadline: Instant,
    /// A renewal that was to shorten it has not been answered, so it may arrive at any time.
    pub(super) ttl_ms_max: u64,
    /// What was asked for.
    pub(super) asked: Op,
}

/// The moment until which a client may count on a hold: from before the sending, minus the margin for its clock.
pub(super) fn deadline(sent: Instant, waited_ms: u64, ttl_ms: u64, expires_in_ms: u64) -> Instant {
    let margin = Duration::from_micros(Drift::default().margin_us(ttl_ms, waited_ms));
    (sent + ms(waited_ms) + ms(expires_in_ms)).checked_sub(margin).unwrap_or(sent)
}

impl Hold {
    pub(super) fn from(lock: &str, asked: &Op, told: &Told) -> Option<Self> {
        let Answer::Granted { token, fence, ttl_ms, expires_in_ms, waited_ms, .. } = &told.answer else { return None };
        Some(Self {
            lock: lock.to_owned(),
            token: token.clone(),
            fence: *fence,
            ttl_ms: *ttl_ms,
            deadline: deadline(told.sent, *waited_ms, *ttl_ms, *expires_in_ms),
            ttl_ms_max: u64::MAX,
            asked: asked.clone(),
        })
    }

    pub(super) fn is_counted_on(&self) -> bool {
        now() < self.deadline
    }

    /// Whether others acquire it too, under one owner.
    pub(super) fn is_shared(&self) -> bool {
        matches!(&self.asked, Op::Acquire { owner: Some(_), .. })
    }

    /// A renewal goes out: if it shortens, the shorter length counts from now.
    pub(super) fn renewal_goes_out(&mut self, ttl_ms: u64) {
        if ttl_ms < self.ttl_ms {
            self.deadline = self.deadline.min(deadline(now(), 0, ttl_ms, ttl_ms));
        }
    }

    /// What became of a renewal that went out.
    pub(super) fn renewal_came_back(&mut self, asked_ms: u64, told: Option<&Told>) {
        match told.map(|told| (told.sent, &told.answer)) {
            Some((sent, Answer::Renewed { ttl_ms, expires_in_ms, waited_ms, .. })) => {
                self.ttl_ms = *ttl_ms;
                self.deadline = deadline(sent, *waited_ms, *ttl_ms, (*expires_in_ms).min(self.ttl_ms_max));
            }
            Some((_, Answer::NotHolder)) => self.deadline = now(),
            Some((_, Answer::Unknown { .. })) if asked_ms < self.ttl_ms => {
                self.ttl_ms_max = self.ttl_ms_max.min(asked_ms);
            }
            _ => {}
        }
    }
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) number: u32,
    pub(super) dice: Dice,
    pub(super) ground: Arc<Ground>,
    pub(super) lane: Lane,
    pub(super) transport: Transport,
    at: u64,
    request_ids: u64,
}

impl Client {
    pub(super) fn new(number: u32, mut dice: Dice, ground: Arc<Ground>) -> Self {
        let transport = Transport::new(number);
        let at = ground.endpoints.any(&mut dice).node;
        Self { number, dice, lane: Lane::of(number), transport, at, request_ids: 0, ground }
    }

    /// Works until told to stop.
    pub(super) fn work(mut self) {
        while !self.ground.is_stopped() {
            if self.number >= self.ground.crowd.clients {
                moves::watch(&mut self);
            } else {
                moves::one(&mut self);
            }
            self.pause(&(0..=60));
        }
    }

    /// The lock of its lane at this moment.
    pub(super) fn lock(&self) -> String {
        self.lane.lock(&self.ground.run, self.ground.origin.elapsed())
    }

    pub(super) fn pause(&mut self, range_ms: &std::ops::RangeInclusive<u64>) {
        thread::sleep(ms(self.dice.between(range_ms)));
    }

    /// A request id never used before.
    pub(super) fn request_id(&mut self) -> String {
        self.request_ids += 1;
        format!("{}/client {}/request {:08}", self.ground.run, self.number, self.request_ids)
    }

    /// The node that it asks next: mostly the one that served it last.
    pub(super) fn node(&mut self) -> Arc<Endpoint> {
        let endpoints = &self.ground.endpoints;
        if self.dice.chance(30) { endpoints.any(&mut self.dice) } else { endpoints.at(self.at) }
    }

    fn patience(&mut self) -> Patience {
        if self.dice.chance(30) { Patience::Full } else { Patience::Short(ms(self.dice.between(&(200..=1_300)))) }
    }

    /// One try at some node. Whoever does not decide is left for another.
    pub(super) fn ask(&mut self, lock: &str, op: Op) -> Option<Told> {
        let (at, patience) = (self.node(), self.patience());
        self.ask_at(at, lock, op, patience)
    }

    /// One try at this node.
    pub(super) fn ask_at(&mut self, at: Arc<Endpoint>, lock: &str, op: Op, patience: Patience) -> Option<Told> {
        let node = at.node;
        let ask = Ask { at, lock: lock.to_owned(), op, patience };
        let told = self.transport.call(&self.ground, &ask);
        let is_decided = told.as_ref().is_some_and(|told| is_decided(&told.answer));
        self.at = if is_decided { node } else { self.ground.endpoints.after(node).node };
        told
    }

    /// Acquires, and asks again when it does not know: with the same request id, or, without one, only if the last try
    /// surely changed nothing.
    pub(super) fn acquire(&mut self, lock: &str, mut op: Op) -> Option<Hold> {
        let begin = now();
        for _ in 0..TRIES {
            if let Op::Acquire { request_id: Some(_), queued_ms, .. } = &mut op {
                *queued_ms = as_ms(begin.elapsed());
            }
            match self.ask(lock, op.clone()) {
                Some(told) if is_decided(&told.answer) => return Hold::from(lock, &op, &told),
                Some(Told { answer: Answer::Unknown { .. }, .. }) if !has_request_id(&op) => return None,
                _undecided => self.pause(&(20..=120)),
            }
            if self.ground.is_stopped() {
                return None;
            }
        }
        None
    }

    /// Asks something that may be asked twice, until it is decided.
    pub(super) fn insist(&mut self, lock: &str, op: &Op) -> Option<Told> {
        for _ in 0..TRIES {
            let told = self.ask(lock, op.clone());
            if told.as_ref().is_some_and(|told| is_decided(&told.answer)) || self.ground.is_stopped() {
                return told;
            }
            self.pause(&(20..=120));
        }
        None
    }
}

fn has_request_id(op: &Op) -> bool {
    matches!(op, Op::Acquire { request_id: Some(_), .. })
}

/// Whether an answer settles the matter: another node would say the same.
fn is_decided(answer: &Answer) -> bool {
    match answer {
        Answer::Unknown { why: Lost::RunEnded } => true,
        Answer::Unknown { .. } => false,
        Answer::Refused { status, .. } => *status != 503,
        _ => true,
    }
}
