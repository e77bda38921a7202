//! Who waits for which lock, in the order in which they will be served.
//!
//! Invariants:
//! 1. A request waits in at most one waiter; a waiter has at least one handle; a lock without waiters is not kept.
//! 2. Every handle stands once in `places` and once in `ends`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::name::{LockKey, OwnerName, RequestId};
use crate::request::{Acquire, Request, RequestNumber};
use crate::units::LocalTime;

/// A request's place in every order: first come, first served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Since when it waits, on the node's own clock, earlier tries included. Negative if that was before this node
    /// started: two waiters that come back to a node just started must not fall together.
    since_ms: i64,
    number: RequestNumber,
}

/// One request that waits: where its answer goes and when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) number: RequestNumber,
    pub(super) arrived: LocalTime,
    pub(super) ends: LocalTime,
    pub(super) wait_ends: LocalTime,
}

/// One place in a queue. A retry that took over another request shares its place: two handles, one grant.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) place: Place,
    /// What the newest of its requests asked.
    pub(super) acquire: Acquire,
    pub(super) handles: Vec<Handle>,
}

/// The waiters of one lock.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeMap<Place, Waiter>,
    request_ids: HashMap<RequestId, Place>,
    owners: BTreeSet<(OwnerName, Place)>,
}

/// All waiters.
#[derive(Debug, Default)]
pub(super) struct Queues {
    locks: HashMap<LockKey, Queue>,
    places: HashMap<RequestNumber, (LockKey, Place)>,
    ends: BTreeSet<(LocalTime, RequestNumber)>,
}

impl Place {
    const FIRST: Self = Self { since_ms: i64::MIN, number: RequestNumber(0) };
    const LAST: Self = Self { since_ms: i64::MAX, number: RequestNumber(u64::MAX) };

    pub(super) fn of(request: &Request) -> Self {
        let queued_ms = match &request.op {
            crate::request::Op::Acquire(acquire) if acquire.request_id.is_some() => acquire.queued_ms,
            _ => 0,
        };
        Self { since_ms: signed(request.arrived.0).saturating_sub(signed(queued_ms)), number: request.number }
    }

    pub(super) fn waiting_ms(self, now: LocalTime) -> u64 {
        u64::try_from(signed(now.0).saturating_sub(self.since_ms)).unwrap_or(0)
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

impl Handle {
    pub(super) fn of(request: &Request, acquire: &Acquire) -> Self {
        Self {
            number: request.number,
            arrived: request.arrived,
            ends: request.ends,
            wait_ends: request.arrived.plus_ms(acquire.wait_ms),
        }
    }

    /// When it has to be looked at again.
    fn due(&self) -> LocalTime {
        self.wait_ends.min(self.ends)
    }
}

impl Waiter {
    /// The waiter without one of its handles; `None` if that was the last.
    pub(super) fn without(mut self, number: RequestNumber) -> Option<Self> {
        self.handles.retain(|handle| handle.number != number);
        (!self.handles.is_empty()).then_some(self)
    }

    pub(super) fn handle(&self, number: RequestNumber) -> Option<&Handle> {
        self.handles.iter().find(|handle| handle.number == number)
    }
}

impl Queue {
    fn insert(&mut self, waiter: Waiter) {
        let place = waiter.place;
        if let Some(request_id) = &waiter.acquire.request_id {
            self.request_ids.insert(request_id.clone(), place);
        }
        if let Some(owner) = &waiter.acquire.owner {
            self.owners.insert((owner.clone(), place));
        }
        let before = self.waiters.insert(place, waiter);
        assert!(before.is_none(), "invariant 1 of the queues: two waiters at one place");
    }

    fn remove(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.waiters.remove(&place)?;
        if let Some(request_id) = &waiter.acquire.request_id {
            self.request_ids.remove(request_id);
        }
        if let Some(owner) = &waiter.acquire.owner {
            self.owners.remove(&(owner.clone(), place));
        }
        Some(waiter)
    }
}

impl Queues {
    pub(super) fn insert(&mut self, waiter: Waiter) {
        let lock = &waiter.acquire.lock;
        for handle in &waiter.handles {
            self.places.insert(handle.number, (lock.clone(), waiter.place));
            self.ends.insert((handle.due(), handle.number));
        }
        self.locks.entry(lock.clone()).or_default().insert(waiter);
        assert_eq!(self.places.len(), self.ends.len(), "invariant 2 of the queues");
    }

    pub(super) fn remove(&mut self, lock: &LockKey, place: Place) -> Option<Waiter> {
        let queue = self.locks.get_mut(lock)?;
        let waiter = queue.remove(place)?;
        if queue.waiters.is_empty() {
            self.locks.remove(lock);
        }
        for handle in &waiter.handles {
            self.places.remove(&handle.number);
            self.ends.remove(&(handle.due(), handle.number));
        }
        Some(waiter)
    }

    /// Takes one request out of its waiter.
    pub(super) fn withdraw(&mut self, number: RequestNumber) {
        let Some((lock, place)) = self.places.get(&number).cloned() else { return };
        if let Some(rest) = self.remove(&lock, place).and_then(|waiter| waiter.without(number)) {
            self.insert(rest);
        }
    }

    /// The waiter that a request waits in.
    pub(super) fn of_request(&self, number: RequestNumber) -> Option<&Waiter> {
        let (lock, place) = self.places.get(&number)?;
        self.locks.get(lock)?.waiters.get(place)
    }

    pub(super) fn of_request_id(&self, lock: &LockKey, request_id: &RequestId) -> Option<&Waiter> {
        let queue = self.locks.get(lock)?;
        queue.waiters.get(queue.request_ids.get(request_id)?)
    }

    /// The places of an owner's waiters, in order.
    pub(super) fn of_owner(&self, lock: &LockKey, owner: &OwnerName) -> Vec<Place> {
        let Some(queue) = self.locks.get(lock) else { return Vec::new() };
        let range = (owner.clone(), Place::FIRST)..=(owner.clone(), Place::LAST);
        queue.owners.range(range).map(|(_, place)| *place).collect()
    }

    pub(super) fn head(&self, lock: &LockKey) -> Option<Place> {
        self.locks.get(lock)?.waiters.first_key_value().map(|(place, _)| *place)
    }

    /// How many places a lock's queue has.
    pub(super) fn len(&self, lock: &LockKey) -> u64 {
        self.locks.get(lock).map_or(0, |queue| queue.waiters.len() as u64)
    }

    pub(super) fn in_order(&self, lock: &LockKey) -> impl Iterator<Item = &Waiter> {
        self.locks.get(lock).into_iter().flat_map(|queue| queue.waiters.values())
    }

    /// Requests whose wait or life is over at `now`, the earliest first.
    pub(super) fn due(&self, now: LocalTime) -> Vec<RequestNumber> {
        self.ends.iter().take_while(|(due, _)| *due <= now).map(|(_, number)| *number).collect()
    }

    pub(super) fn next_due(&self) -> Option<LocalTime> {
        self.ends.first().map(|(due, _)| *due)
    }

    /// How many requests wait.
    pub(super) fn requests(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = RequestNumber> {
        self.places.keys().copied()
    }
}
