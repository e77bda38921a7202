//! What a search that is stuck means, in words.

use super::lock_calls::{Deed, Entry, How, LockCalls, tokens};
use super::model::{Hold, Refusal};
use super::report::{Kind, Violation, seconds};
use super::search::Stuck;
use crate::history::{Answer, Call, Op, Proof};

/// The violation that `stuck` shows. `lock` is what is left of `calls`.
pub(super) fn blame(name: &str, calls: &[&Call], lock: &LockCalls, stuck: &Stuck) -> Violation {
    let entry = &lock.entries[stuck.entry];
    let (kind, text) = Case { calls, lock, stuck, entry }.explain();
    let shown: Vec<&Call> = lock.entries.iter().map(|entry| calls[entry.call]).collect();
    Violation::new(kind, name, text, &shown)
}

struct Case<'a> {
    calls: &'a [&'a Call],
    lock: &'a LockCalls,
    stuck: &'a Stuck,
    entry: &'a Entry,
}

impl Case<'_> {
    fn explain(&self) -> (Kind, String) {
        match self.stuck.refusal {
            Refusal::Alive { hold, until_us } => self.alive(&hold, until_us),
            Refusal::FenceFell { last } => self.fence_fell(last),
            Refusal::NotYet { lower } => self.not_yet(lower),
            Refusal::FenceTwice { hold } => {
                let text = format!("fence {} is granted to two requests, the second in {}", hold.fence, self.call_id());
                (Kind::FenceTwice, text)
            }
            Refusal::Over => self.over(),
            Refusal::OtherTtl { hold } => {
                let (fence, ttl_ms) = (hold.fence, hold.ttl_us / 1_000);
                let text =
                    format!("{} shows fence {fence} with another TTL than the last, {ttl_ms} ms", self.call_id());
                (Kind::WrongTtl, text)
            }
            Refusal::Own { hold } => {
                let text =
                    format!("{} is denied because of fence {}, which is its own hold", self.call_id(), hold.fence);
                (Kind::DeniedByOwnHold, text)
            }
        }
    }

    /// The answer needs the end of a hold that was surely alive.
    fn alive(&self, hold: &Hold, until_us: u64) -> (Kind, String) {
        let until = format!("the hold with fence {} lasts until {} at least", hold.fence, seconds(until_us));
        let Deed::Grant { fence, request, .. } = self.entry.deed else {
            return (Kind::LostGrant, format!("{until}, but {} finds it gone", self.call_id()));
        };
        if request != 0 && request == hold.request {
            let text = format!("{until}, but its own request, repeated in {}, gets fence {fence}", self.call_id());
            return (Kind::RetryForgotten, text);
        }
        match self.confirmation(hold.fence, fence) {
            Some(confirmed) => {
                let text = format!(
                    "{} grants fence {fence} while fence {} holds: call {confirmed} confirms it",
                    self.call_id(),
                    hold.fence
                );
                (Kind::TwoHolders, text)
            }
            None => (Kind::EarlyGrant, format!("{until}, but {} grants fence {fence}", self.call_id())),
        }
    }

    /// A call by which the service confirmed the hold with `fence` after it had granted `other`.
    fn confirmation(&self, fence: u64, other: u64) -> Option<u64> {
        let tokens = tokens(self.calls);
        let granted = self.calls.iter().filter(|call| confirmed_fence(call, &tokens) == Some(other));
        let granted_us = granted.filter_map(|call| call.received_us).min()?;
        let confirms = |call: &&&Call| call.sent_us > granted_us && confirmed_fence(call, &tokens) == Some(fence);
        self.calls.iter().find(confirms).map(|call| call.id)
    }

    fn fence_fell(&self, last: u64) -> (Kind, String) {
        (Kind::FenceFell, format!("{} grants a fence after fence {last} was granted", self.call_id()))
    }

    /// A lower fence had to be granted first, but it can't have been.
    fn not_yet(&self, lower: u64) -> (Kind, String) {
        let mut naming = self.lock.entries.iter().filter(|entry| entry.deed.fence() == Some(lower));
        let is_grant = |entry: &&Entry| matches!(entry.deed, Deed::Grant { how: How::Granted, .. });
        if let Some(grant) = naming.clone().find(is_grant) {
            let later = self.calls[grant.call].id;
            let text = format!("call {later} grants fence {lower} after {} was granted a higher one", self.call_id());
            return (Kind::FenceFell, text);
        }
        let Some(naming) = naming.next() else { return (Kind::FenceFell, self.call_id()) };
        let shown_by = self.calls[naming.call].id;
        if self.lock.asks.is_empty() {
            return (Kind::FenceOfNobody, format!("call {shown_by} shows fence {lower}, which nobody was granted"));
        }
        let text = format!("call {shown_by} shows fence {lower}, although {} was granted a higher one", self.call_id());
        (kind_of(&naming.deed), text)
    }

    /// The answer names a hold that was not in force.
    fn over(&self) -> (Kind, String) {
        let fence = self.entry.deed.fence().unwrap_or(0);
        if fence > self.stuck.state.last_fence && !self.is_granted(fence) {
            let text = format!("{} shows fence {fence}, which no request can have been granted", self.call_id());
            return (Kind::FenceOfNobody, text);
        }
        let in_force = match self.stuck.state.hold {
            Some(hold) => format!("fence {} holds by then", hold.fence),
            None => "the lock is free by then".to_owned(),
        };
        let kind = kind_of(&self.entry.deed);
        let verb = match kind {
            Kind::StaleDenial => "is denied because of",
            Kind::StaleRead => "shows",
            _ => "acknowledges",
        };
        (kind, format!("{} {verb} fence {fence}, but {in_force}", self.call_id()))
    }

    fn is_granted(&self, fence: u64) -> bool {
        let grants = |call: &&&Call| matches!(call.answer, Answer::Granted { fence: granted, .. } if granted == fence);
        self.calls.iter().any(|call| grants(&call))
    }

    fn call_id(&self) -> String {
        format!("call {}", self.calls[self.entry.call].id)
    }
}

/// What it is to name a hold that is over.
fn kind_of(deed: &Deed) -> Kind {
    match deed {
        Deed::Denied { .. } => Kind::StaleDenial,
        Deed::Shown { .. } => Kind::StaleRead,
        _ => Kind::AckAfterEnd,
    }
}

/// The fence whose hold was in force when the call was answered, as the service said to its holder.
fn confirmed_fence(call: &Call, tokens: &std::collections::HashMap<&str, u64>) -> Option<u64> {
    match (&call.op, &call.answer) {
        (_, Answer::Granted { fence, .. } | Answer::Renewed { fence, .. }) => Some(*fence),
        (Op::Release { token } | Op::Renew { by: Proof::Token(token), .. }, Answer::Released) => {
            tokens.get(token.as_str()).copied()
        }
        (_, Answer::Held { holders, .. } | Answer::Got { holders, .. }) => holders.first().copied(),
        _ => None,
    }
}
