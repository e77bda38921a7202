//! The two ends of a request between its caller and the arbiter.
//!
//! Invariants
//! 1. A request is in one of three states: queued, logged (a record of its own was proposed), withdrawn. Only
//!    queued → logged and queued → withdrawn exist, each by one atomic step, so a request that its caller gave up is
//!    never proposed afterwards, and a caller never hears "nothing was changed" of a request that was.
//! 2. A fresh grant whose caller is gone is given back by exactly one of the two ends: by the office if the answer
//!    could not be handed over, by the caller's end if it was handed over and never taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lockstead_core::{GiveBack, LocalTime, LockKey, Op, Outcome, RequestNumber};
use tokio::sync::{mpsc, oneshot};

use crate::plant::{Plant, planted};
use crate::platform::ClockPair;

const QUEUED: u8 = 0;
const LOGGED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// A request on its way to an office.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) number: RequestNumber,
    pub(crate) arrived: LocalTime,
    pub(crate) ends: LocalTime,
    pub(crate) op: Op,
    pub(crate) ticket: Ticket,
}

/// What an office is told. Each request sends at most one, so the channel needs no bound of its own.
#[derive(Debug)]
pub(crate) enum Note {
    /// The caller is gone or was told that nothing was changed.
    Withdrawn(RequestNumber),
    /// A grant reached nobody.
    GiveBack(GiveBack),
    /// There may be something to restate.
    Restate,
}

/// An answer with the moment of its decision.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) outcome: Outcome,
    pub(crate) waited_ms: u64,
    pub(crate) decided_at: ClockPair,
}

/// What an office sends back.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// It was decided, and the decision stands.
    Decided(Decision),
    /// This office is over and the request changed nothing.
    NotLeader,
    /// This office is over; a record of the request may still commit.
    Unknown,
}

/// The office's end.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Arc<AtomicU8>,
    reply: oneshot::Sender<Delivery>,
}

impl Ticket {
    /// Marks the request as proposed; `false` if its caller withdrew it before.
    pub(crate) fn mark_logged(&self) -> bool {
        self.state.compare_exchange(QUEUED, LOGGED, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|was| was)
            != WITHDRAWN
    }

    /// A refused batch left the request as it was before it was proposed.
    pub(crate) fn mark_queued(&self) {
        let _ = self.state.compare_exchange(LOGGED, QUEUED, Ordering::SeqCst, Ordering::SeqCst);
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.state.load(Ordering::SeqCst) == WITHDRAWN
    }

    /// Hands the answer over; gives it back if the caller is gone.
    pub(crate) fn deliver(self, delivery: Delivery) -> Result<(), Delivery> {
        self.reply.send(delivery)
    }

    /// The office is over.
    pub(crate) fn close(self) {
        let logged = self.state.load(Ordering::SeqCst) == LOGGED;
        let _ = self.reply.send(if logged { Delivery::Unknown } else { Delivery::NotLeader });
    }
}

/// The caller's end. Dropping it withdraws the request, or gives its grant back.
#[derive(Debug)]
pub(crate) struct Claim {
    number: RequestNumber,
    lock: LockKey,
    state: Arc<AtomicU8>,
    reply: Option<oneshot::Receiver<Delivery>>,
    notes: mpsc::UnboundedSender<Note>,
}

/// Makes the two ends of a request.
pub(crate) fn pair(number: RequestNumber, lock: LockKey, notes: mpsc::UnboundedSender<Note>) -> (Ticket, Claim) {
    let state = Arc::new(AtomicU8::new(QUEUED));
    let (reply_in, reply_out) = oneshot::channel();
    let ticket = Ticket { state: Arc::clone(&state), reply: reply_in };
    (ticket, Claim { number, lock, state, reply: Some(reply_out), notes })
}

impl Claim {
    /// Waits for the answer. May be called again if the future was dropped before it was ready.
    pub(crate) async fn answer(&mut self) -> Delivery {
        let Some(reply) = &mut self.reply else { return Delivery::Unknown };
        let delivery = reply.await;
        self.reply = None;
        // A ticket dropped without a word is an office that ended in the middle.
        delivery.unwrap_or_else(|_| if self.is_logged() { Delivery::Unknown } else { Delivery::NotLeader })
    }

    /// Gives the request up: `true` if it surely changes nothing from now on.
    pub(crate) fn withdraw(&self) -> bool {
        self.state.compare_exchange(QUEUED, WITHDRAWN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn is_logged(&self) -> bool {
        self.state.load(Ordering::SeqCst) == LOGGED
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(mut reply) = self.reply.take() else { return };
        if planted(Plant::DeadWaiterGranted) {
            return;
        }
        reply.close();
        let note = match reply.try_recv() {
            Ok(Delivery::Decided(decision)) => decision.outcome.give_back(&self.lock).map(Note::GiveBack),
            Ok(_) => None,
            Err(_) => {
                self.withdraw();
                Some(Note::Withdrawn(self.number))
            }
        };
        if let Some(note) = note {
            // No receiver: the office is over, and with it the term in which a grant may be given back.
            let _ = self.notes.send(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstead_core::{Fence, Grant, LockName, Token, Ttl};

    use super::*;

    fn ends() -> (Ticket, Claim, mpsc::UnboundedReceiver<Note>) {
        let (notes_in, notes) = mpsc::unbounded_channel();
        let lock = LockKey::in_default(&LockName::parse("a").unwrap());
        let (ticket, claim) = pair(RequestNumber(7), lock, notes_in);
        (ticket, claim, notes)
    }

    fn grant(fresh: bool) -> Delivery {
        let grant = Grant {
            fence: Fence(3),
            token: Token([1; 16]),
            ttl: Ttl::DEFAULT,
            left_ms: 30_000,
            renewed: false,
            term: 2,
            fresh,
        };
        Delivery::Decided(Decision { outcome: Outcome::Granted(grant), waited_ms: 0, decided_at: ClockPair::default() })
    }

    #[test]
    fn a_withdrawn_request_is_never_proposed() {
        let (ticket, claim, _notes) = ends();
        assert!(claim.withdraw());
        assert!(!ticket.mark_logged());
    }

    #[test]
    fn a_proposed_request_cannot_be_withdrawn_but_a_refused_one_can() {
        let (ticket, claim, _notes) = ends();
        assert!(ticket.mark_logged());
        assert!(!claim.withdraw());
        ticket.mark_queued();
        assert!(claim.withdraw());
    }

    #[test]
    fn a_dropped_claim_withdraws() {
        let (ticket, claim, mut notes) = ends();
        drop(claim);
        assert!(ticket.is_withdrawn());
        assert!(matches!(notes.try_recv(), Ok(Note::Withdrawn(RequestNumber(7)))));
    }

    #[test]
    fn a_fresh_grant_that_was_handed_over_and_never_taken_is_given_back() {
        let (ticket, claim, mut notes) = ends();
        assert!(ticket.deliver(grant(true)).is_ok());
        drop(claim);
        let Ok(Note::GiveBack(give_back)) = notes.try_recv() else { panic!("no give-back") };
        assert_eq!((give_back.fence, give_back.term), (Fence(3), 2));
    }

    #[test]
    fn a_grant_that_others_were_told_of_is_not_given_back() {
        let (ticket, claim, mut notes) = ends();
        assert!(ticket.deliver(grant(false)).is_ok());
        drop(claim);
        assert!(notes.try_recv().is_err());
    }

    #[test]
    fn an_answer_for_a_caller_that_is_gone_comes_back_to_the_office() {
        let (ticket, claim, _notes) = ends();
        assert!(ticket.mark_logged());
        drop(claim);
        assert!(matches!(ticket.deliver(grant(true)), Err(Delivery::Decided(_))));
    }

    #[tokio::test]
    async fn an_office_that_closes_tells_unknown_of_what_it_proposed_only() {
        let (ticket, mut claim, _notes) = ends();
        ticket.close();
        assert!(matches!(claim.answer().await, Delivery::NotLeader));
        let (ticket, mut claim, _notes) = ends();
        assert!(ticket.mark_logged());
        drop(ticket);
        assert!(matches!(claim.answer().await, Delivery::Unknown));
    }
}
