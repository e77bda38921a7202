//! The calls of one lock as the search sees them: what each answer asserts, and what may have happened unseen.

use std::collections::{BTreeMap, HashMap};

use crate::history::{Answer, Call, Drift, Lost, Op, Proof};

/// An owner or a request id, as a small number; 0 is none.
pub(super) type Label = u32;

/// A call whose answer is known: it took effect at one moment between `low_us` and `high_us`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Where it stands in the calls of the lock.
    pub(super) call: usize,
    /// Not before this.
    pub(super) low_us: u64,
    /// Not after this.
    pub(super) high_us: u64,
    /// What its answer asserts.
    pub(super) deed: Deed,
}

/// What an answer asserts about the moment at which it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// The caller holds the lock, newly or as before.
    Grant { fence: u64, how: How, owner: Label, request: Label, ttl_us: u64, end_us: u64 },
    /// The caller was denied; 0 if no holder was named.
    Denied { holder: u64, owner: Label, request: Label },
    /// The hold was prolonged; `owner` is 0 if a token proved it.
    Renewed { fence: u64, owner: Label, ttl_us: u64, end_us: u64 },
    /// The hold was ended.
    Released { fence: u64 },
    /// There was no such hold.
    Gone { of: Whose },
    /// The lock was held with this fence.
    Shown { fence: u64 },
    /// The lock was free.
    Free,
}

/// How a grant came about, as its answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// A new hold, or the repeated answer about the hold that the same request was granted.
    Granted,
    /// The owner held it already.
    RenewedAsOwner,
}

/// Which hold is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The one with this fence.
    Fence(u64),
    /// The one of this owner.
    Owner(Label),
}

impl Deed {
    /// The fence that the lock must have at that moment.
    pub(super) fn fence(&self) -> Option<u64> {
        match *self {
            Self::Grant { fence, .. }
            | Self::Renewed { fence, .. }
            | Self::Released { fence }
            | Self::Shown { fence }
            | Self::Denied { holder: fence, .. } => Some(fence).filter(|fence| *fence != 0),
            Self::Gone { .. } | Self::Free => None,
        }
    }
}

/// An acquire with an unknown outcome: it may have been granted at any time from `sent_us` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) sent_us: u64,
    pub(super) owner: Label,
    pub(super) request: Label,
}

/// A release or renewal with an unknown outcome: from `sent_us` on it may end a hold, or let it end sooner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub(super) sent_us: u64,
    pub(super) of: Whose,
    pub(super) effect: Effect,
}

/// What a [`Doubt`] may do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// End the hold.
    Release,
    /// Let it end this long after the effect, the margin taken off.
    Shorten { ttl_us: u64, margin_us: u64 },
}

/// What is known of the request that a fence was granted to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grantee {
    /// The request id of a grant with a known answer.
    pub(super) granted: Option<Label>,
    /// The owner.
    pub(super) owner: Option<Label>,
}

/// The calls of one lock.
#[derive(Debug, Default)]
pub(super) struct LockCalls {
    /// By `low_us`.
    pub(super) entries: Vec<Entry>,
    /// By `sent_us`.
    pub(super) asks: Vec<Ask>,
    pub(super) doubts: Vec<Doubt>,
    /// Every fence that the lock must have had at some time.
    pub(super) fences: Vec<(u64, Grantee)>,
}

impl LockCalls {
    /// Reads the calls of one lock. Of a call for which `is_relaxed` holds, nothing is asserted: it is as if its answer
    /// were unknown, so that fewer histories are rejected.
    pub(super) fn of(calls: &[&Call], drift: Drift, is_relaxed: impl Fn(usize) -> bool) -> Self {
        let tokens = tokens(calls);
        let mut reader = Reader { drift, tokens, owners: Labels::default(), requests: Labels::default() };
        let mut read = Self::default();
        for (index, call) in calls.iter().enumerate() {
            match reader.entry(index, call) {
                Some(entry) if !is_relaxed(index) => read.entries.push(entry),
                entry => reader.unseen(call, entry.is_some(), &mut read),
            }
        }
        read.entries.sort_by_key(|entry| (entry.low_us, entry.high_us));
        read.asks.sort_by_key(|ask| ask.sent_us);
        read.fences = fences(&read.entries);
        read
    }

    /// The lowest fence above `last` that the lock must have had.
    pub(super) fn next_fence(&self, last: u64) -> Option<(u64, Grantee)> {
        self.fences.get(self.fences.partition_point(|(fence, _)| *fence <= last)).copied()
    }
}

/// The fence that each token of the lock proves.
pub(super) fn tokens<'a>(calls: &[&'a Call]) -> HashMap<&'a str, u64> {
    let granted = calls.iter().filter_map(|call| match &call.answer {
        Answer::Granted { token, fence, .. } => Some((token.as_str(), *fence)),
        _ => None,
    });
    granted.collect()
}

fn fences(entries: &[Entry]) -> Vec<(u64, Grantee)> {
    let mut fences: BTreeMap<u64, Grantee> = BTreeMap::new();
    for entry in entries {
        let Some(fence) = entry.deed.fence() else { continue };
        let grantee = fences.entry(fence).or_default();
        match entry.deed {
            Deed::Grant { how, owner, request, .. } => {
                grantee.owner = Some(owner);
                if how == How::Granted {
                    // One that names no request can't be a repeated answer: it is the grant itself.
                    grantee.granted = Some(grantee.granted.map_or(request, |known| known.min(request)));
                }
            }
            Deed::Renewed { owner, .. } if owner != 0 => grantee.owner = Some(owner),
            _ => {}
        }
    }
    fences.into_iter().collect()
}

#[derive(Default)]
struct Labels<'a>(HashMap<&'a str, Label>);

impl<'a> Labels<'a> {
    fn of(&mut self, text: Option<&'a String>) -> Label {
        let next = Label::try_from(self.0.len() + 1).expect("fewer than 2^32 calls of one lock");
        text.map_or(0, |text| *self.0.entry(text).or_insert(next))
    }
}

struct Reader<'a> {
    drift: Drift,
    tokens: HashMap<&'a str, u64>,
    owners: Labels<'a>,
    requests: Labels<'a>,
}

impl<'a> Reader<'a> {
    /// What the answer of a call asserts, if anything.
    fn entry(&mut self, index: usize, call: &'a Call) -> Option<Entry> {
        let deed = self.deed(call)?;
        let high_us = call.received_us?;
        let low_us = decided_from_us(call, self.drift).min(high_us);
        Some(Entry { call: index, low_us, high_us, deed })
    }

    fn deed(&mut self, call: &'a Call) -> Option<Deed> {
        let deed = match (&call.op, &call.answer) {
            (Op::Acquire { owner, request_id, .. }, Answer::Granted { fence, ttl_ms, renewed, .. }) => Deed::Grant {
                fence: *fence,
                how: if *renewed { How::RenewedAsOwner } else { How::Granted },
                owner: self.owners.of(owner.as_ref()),
                request: self.requests.of(request_id.as_ref()),
                ttl_us: ttl_ms.saturating_mul(1_000),
                end_us: earliest_end_us(call, self.drift)?,
            },
            (Op::Acquire { owner, request_id, .. }, Answer::Held { holders, .. }) => Deed::Denied {
                holder: holders.first().copied().unwrap_or(0),
                owner: self.owners.of(owner.as_ref()),
                request: self.requests.of(request_id.as_ref()),
            },
            (Op::Release { token }, Answer::Released) => Deed::Released { fence: self.fence_of(token) },
            (Op::Release { token }, Answer::NotHolder) => Deed::Gone { of: Whose::Fence(self.fence_of(token)) },
            (Op::Renew { by, .. }, Answer::NotHolder) => Deed::Gone { of: self.whose(by) },
            (Op::Renew { by, .. }, Answer::Renewed { fence, ttl_ms, .. }) => Deed::Renewed {
                fence: *fence,
                owner: match self.whose(by) {
                    Whose::Owner(owner) => owner,
                    Whose::Fence(_) => 0,
                },
                ttl_us: ttl_ms.saturating_mul(1_000),
                end_us: earliest_end_us(call, self.drift)?,
            },
            (Op::Get, Answer::Got { holders, .. }) => {
                holders.first().map_or(Deed::Free, |fence| Deed::Shown { fence: *fence })
            }
            (Op::Get, Answer::NotHeld) => Deed::Free,
            _ => return None,
        };
        Some(deed)
    }

    /// What a call of unknown outcome may have done. One that was surely refused did nothing.
    fn unseen(&mut self, call: &'a Call, relaxed: bool, read: &mut LockCalls) {
        if !relaxed && !matches!(call.answer, Answer::Unknown { .. }) {
            return;
        }
        let sent_us = call.sent_us;
        match &call.op {
            Op::Acquire { ttl_ms, owner, request_id, .. } => {
                let (owner, request) = (self.owners.of(owner.as_ref()), self.requests.of(request_id.as_ref()));
                read.asks.push(Ask { sent_us, owner, request });
                if owner != 0 {
                    read.doubts.push(Doubt { sent_us, of: Whose::Owner(owner), effect: self.shorten(*ttl_ms) });
                }
            }
            Op::Release { token } => {
                let of = Whose::Fence(self.fence_of(token));
                read.doubts.push(Doubt { sent_us, of, effect: Effect::Release });
            }
            Op::Renew { by, ttl_ms } => {
                read.doubts.push(Doubt { sent_us, of: self.whose(by), effect: self.shorten(*ttl_ms) });
            }
            Op::Get => {}
        }
    }

    fn shorten(&self, ttl_ms: u64) -> Effect {
        Effect::Shorten { ttl_us: ttl_ms * 1_000, margin_us: self.drift.margin_us(ttl_ms, 0) }
    }

    /// `u64::MAX` for a token that nobody was given: no hold has it.
    fn fence_of(&self, token: &str) -> u64 {
        self.tokens.get(token).copied().unwrap_or(u64::MAX)
    }

    fn whose(&mut self, proof: &'a Proof) -> Whose {
        match proof {
            Proof::Token(token) => Whose::Fence(self.fence_of(token)),
            Proof::Owner(owner) => Whose::Owner(self.owners.of(Some(owner))),
        }
    }
}

/// The earliest moment at which the answer can have been decided: a wait that was reported lies before it.
pub(super) fn decided_from_us(call: &Call, drift: Drift) -> u64 {
    let (Answer::Granted { waited_ms, .. } | Answer::Renewed { waited_ms, .. }) = &call.answer else {
        return call.sent_us;
    };
    call.sent_us.saturating_add(waited_ms.saturating_mul(1_000).saturating_sub(drift.margin_us(0, *waited_ms)))
}

/// The earliest moment at which a hold may end after this answer: the moment until which its client counts on it.
pub(super) fn earliest_end_us(call: &Call, drift: Drift) -> Option<u64> {
    let (Answer::Granted { ttl_ms, expires_in_ms, waited_ms, .. }
    | Answer::Renewed { ttl_ms, expires_in_ms, waited_ms, .. }) = &call.answer
    else {
        return None;
    };
    let end_us = call.sent_us.saturating_add(waited_ms.saturating_add(*expires_in_ms).saturating_mul(1_000));
    Some(end_us.saturating_sub(drift.margin_us(*ttl_ms, *waited_ms)))
}

/// When the client of a call without an answer went away, if it did.
pub(super) fn left_us(call: &Call) -> Option<u64> {
    match call.answer {
        Answer::Unknown {
            why: Lost::ConnectionLost { at_us } | Lost::Abandoned { at_us } | Lost::GaveUp { at_us },
        } => Some(at_us),
        _ => None,
    }
}
