//! Acquire, and whom a free lock goes to.

use super::Undo;
use super::decide::Deciding;
use super::queue::{Handle, Place, Waiter};
use crate::name::{LockKey, OwnerName};
use crate::record::{Hold, Mode, REQUEST_BYTES_MAX};
use crate::request::{Acquire, Grant, Outcome, Request};
use crate::units::{FENCE_MAX, Fence, Ttl};

impl Deciding<'_> {
    /// In this order: a queued request that this one repeats; waiters before it; a hold that it repeats; a hold of its
    /// owner; a free lock; a place in the queue.
    pub(super) fn acquire(&mut self, request: &Request, acquire: &Acquire) {
        self.expire(&acquire.lock);
        if !self.take_over(request, acquire) {
            self.acquire_anew(request, acquire);
        }
        // The lock may be free still: expired, and this request did not get it.
        self.serve(&acquire.lock);
    }

    fn acquire_anew(&mut self, request: &Request, acquire: &Acquire) {
        let (lock, place) = (&acquire.lock, Place::of(request));
        if self.arbiter.queues.head(lock).is_some_and(|head| head < place) {
            self.serve(lock);
        }
        if let Some(hold) = self.repeated_hold(acquire) {
            self.repeat(request, acquire, &hold);
        } else if let Some(hold) = self.own_hold(acquire) {
            let prolonged = self.prolong(hold, acquire.ttl);
            let grant = Grant { renewed: true, ..self.grant_of(&prolonged) };
            self.answer_logged(request.number, self.waited_ms(request), Outcome::Granted(grant));
        } else if self.view.is_free(lock) && !self.is_held_off() {
            self.grant_or_refuse(acquire, &[Handle::of(request, acquire)]);
        } else {
            self.wait_or_refuse(place, request, acquire);
        }
    }

    /// Grants a free lock to the first of its waiters that may have it.
    pub(super) fn serve(&mut self, lock: &LockKey) {
        if self.arbiter.queues.head(lock).is_some() && self.is_held_off() {
            self.put_off(lock);
            return;
        }
        while self.view.is_free(lock) {
            let Some(head) = self.arbiter.queues.head(lock) else { break };
            let Some(waiter) = self.arbiter.queues.remove(lock, head) else { break };
            self.grant_or_refuse(&waiter.acquire, &waiter.handles);
            self.remember(Undo::Waiter { lock: lock.clone(), now_at: None, before: Some(waiter) });
        }
        if self.arbiter.put_off.remove(lock) {
            self.remember(Undo::Served(lock.clone()));
        }
    }

    fn put_off(&mut self, lock: &LockKey) {
        if self.arbiter.put_off.insert(lock.clone()) {
            self.remember(Undo::PutOff(lock.clone()));
        }
    }

    /// A retry shares the place of the request that it repeats, if that still waits: one grant answers both.
    fn take_over(&mut self, request: &Request, acquire: &Acquire) -> bool {
        let Some(request_id) = &acquire.request_id else { return false };
        let Some(waiting) = self.arbiter.queues.of_request_id(&acquire.lock, request_id) else { return false };
        if waiting.acquire.owner != acquire.owner {
            self.answer(request.number, self.waited_ms(request), Outcome::RequestIdReused);
            return true;
        }
        let place = waiting.place;
        self.join(place, request, acquire);
        self.serve(&acquire.lock);
        if self.is_waited_out(&Handle::of(request, acquire)) {
            self.refuse_waiting(request.number);
        }
        true
    }

    fn join(&mut self, place: Place, request: &Request, acquire: &Acquire) {
        let lock = &acquire.lock;
        let Some(before) = self.arbiter.queues.remove(lock, place) else { return };
        let mut handles = before.handles.clone();
        handles.push(Handle::of(request, acquire));
        let waiter = Waiter { place: place.min(Place::of(request)), acquire: acquire.clone(), handles };
        self.remember(Undo::Waiter { lock: lock.clone(), now_at: Some(waiter.place), before: Some(before) });
        self.arbiter.queues.insert(waiter);
    }

    fn wait_or_refuse(&mut self, place: Place, request: &Request, acquire: &Acquire) {
        let handle = Handle::of(request, acquire);
        if self.is_waited_out(&handle) {
            let held = self.held(&acquire.lock);
            self.answer(request.number, self.waited_ms(request), held);
            return;
        }
        self.arbiter.queues.insert(Waiter { place, acquire: acquire.clone(), handles: vec![handle] });
        self.remember(Undo::Waiter { lock: acquire.lock.clone(), now_at: Some(place), before: None });
    }

    fn is_waited_out(&self, handle: &Handle) -> bool {
        handle.wait_ends <= self.now.local
    }

    /// The hold that an earlier try of this request made.
    fn repeated_hold(&self, acquire: &Acquire) -> Option<Hold> {
        acquire.request_id.as_ref()?;
        self.view.holds(&acquire.lock).iter().find(|hold| hold.request_id == acquire.request_id).cloned()
    }

    fn repeat(&mut self, request: &Request, acquire: &Acquire, hold: &Hold) {
        if hold.owner != acquire.owner || hold.mode != Mode::Exclusive {
            self.answer(request.number, self.waited_ms(request), Outcome::RequestIdReused);
            return;
        }
        self.claim(hold.fence);
        // The grant reported was decided before this try counts as waiting.
        self.answer(request.number, 0, Outcome::Granted(self.grant_of(hold)));
    }

    fn own_hold(&self, acquire: &Acquire) -> Option<Hold> {
        acquire.owner.as_ref()?;
        self.view.holds(&acquire.lock).iter().find(|hold| hold.owner == acquire.owner).cloned()
    }

    /// Grants a free lock to a request, and to every waiter of the same owner with it: for them it is renewed at once,
    /// the last one's TTL counts.
    fn grant_or_refuse(&mut self, acquire: &Acquire, handles: &[Handle]) {
        if let Some(refusal) = self.refusal(acquire.lock.namespace()) {
            for handle in handles {
                self.answer(handle.number, self.now.local.ms_since(handle.arrived), refusal.clone());
            }
            return;
        }
        let others = acquire.owner.as_ref().map_or_else(Vec::new, |owner| self.take_waiters_of(&acquire.lock, owner));
        let hold = self.new_hold(acquire, others.last().map_or(acquire.ttl, |waiter| waiter.acquire.ttl));
        self.put(hold.clone());
        if handles.len() > 1 || !others.is_empty() {
            self.claim(hold.fence);
        }
        let grant = self.grant_of(&hold);
        self.answer_granted(handles, &Grant { fresh: true, ..grant.clone() });
        for waiter in others {
            self.answer_granted(&waiter.handles, &Grant { renewed: true, ..grant.clone() });
            self.remember(Undo::Waiter { lock: hold.lock.clone(), now_at: None, before: Some(waiter) });
        }
    }

    fn take_waiters_of(&mut self, lock: &LockKey, owner: &OwnerName) -> Vec<Waiter> {
        let places = self.arbiter.queues.of_owner(lock, owner);
        places.into_iter().filter_map(|place| self.arbiter.queues.remove(lock, place)).collect()
    }

    fn answer_granted(&mut self, handles: &[Handle], grant: &Grant) {
        for handle in handles {
            let waited_ms = self.now.local.ms_since(handle.arrived);
            self.answer_logged(handle.number, waited_ms, Outcome::Granted(grant.clone()));
        }
    }

    fn new_hold(&mut self, acquire: &Acquire, ttl: Ttl) -> Hold {
        Hold {
            lock: acquire.lock.clone(),
            fence: Fence(self.view.last_fence().0 + 1),
            token: (self.token)(),
            owner: acquire.owner.clone(),
            request_id: acquire.request_id.clone(),
            mode: Mode::Exclusive,
            permits: 1,
            session: None,
            ttl,
            deadline: self.now.lease.plus_ms(ttl.as_ms()),
            delay_ms: 0,
            acquired_at: self.now.wall,
            metadata: acquire.metadata.clone(),
        }
    }

    /// What an answer says of a hold: `fresh` and `renewed` are for the caller to set.
    fn grant_of(&self, hold: &Hold) -> Grant {
        Grant {
            fence: hold.fence,
            token: hold.token,
            ttl: hold.ttl,
            left_ms: hold.deadline.ms_since(self.now.lease),
            renewed: false,
            term: self.arbiter.term,
            fresh: false,
        }
    }

    /// Why nothing more may be granted in a namespace. The last fence is a limit too: it is shown as one.
    fn refusal(&mut self, namespace: &str) -> Option<Outcome> {
        if self.view.last_fence() >= FENCE_MAX {
            return Some(Outcome::LimitExceeded { limit: FENCE_MAX.0, current: self.view.last_fence().0 });
        }
        self.make_room(namespace);
        let (limit, current) = (self.arbiter.limits.locks_max, self.view.live_in(namespace));
        (current >= limit).then_some(Outcome::LimitExceeded { limit, current })
    }

    /// In a full namespace, drops holds past their deadline until a grant has room. Those of locks with waiters make
    /// none, since their waiters are served in turn.
    fn make_room(&mut self, namespace: &str) {
        let table = self.view.table();
        let bytes_max = self.batch.len_bytes() + REQUEST_BYTES_MAX / 2;
        for (lock, fence) in table.expired(self.now.lease) {
            if self.view.live_in(namespace) < self.arbiter.limits.locks_max || self.batch.len_bytes() > bytes_max {
                return;
            }
            let unwanted = lock.namespace() == namespace && self.arbiter.queues.head(lock).is_none();
            if unwanted && self.view.hold(lock, fence).is_some() {
                self.drop_expired(lock, fence);
            }
        }
    }
}
