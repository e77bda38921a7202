//! What is known of each hold of a lock, apart from any order of the calls.

use std::collections::{BTreeMap, HashMap};

use super::deadlines::life_ms;
use super::leaderless::Timing;
use super::lock_calls::{decided_from_us, earliest_end_us, tokens};
use crate::history::{Answer, Call, Drift, Lost, Op, Proof};

/// How long after its deadline a request may still take effect: what was proposed in time may be committed a little
/// later.
const IN_FLIGHT_US: u64 = 1_000_000;
/// Within this a waiter whose client has gone has lost its place.
const FORGOTTEN_AFTER_US: u64 = 500_000;

/// The holds of one lock.
pub(super) struct Book<'a> {
    pub(super) lock: &'a str,
    pub(super) calls: &'a [&'a Call],
    drift: Drift,
    pub(super) holds: BTreeMap<u64, HoldFacts<'a>>,
    /// The acquires with unknown outcome.
    pub(super) asks: Vec<&'a Call>,
}

/// What is known of one hold.
#[derive(Default)]
pub(super) struct HoldFacts<'a> {
    /// The acquires that were answered with it.
    pub(super) grants: Vec<&'a Call>,
    /// All calls that may have prolonged it or let it end sooner, the unanswered too.
    pub(super) renewals: Vec<&'a Call>,
    /// The releases by its token, the unanswered too.
    pub(super) releases: Vec<&'a Call>,
    /// The calls whose answers say that it was in force.
    pub(super) evidence: Vec<Evidence<'a>>,
}

/// An answer that says that a hold was in force.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) call: &'a Call,
    /// It was in force at this moment or later,
    pub(super) from_us: u64,
    /// and at this one or earlier.
    pub(super) to_us: u64,
}

impl<'a> Book<'a> {
    pub(super) fn of(lock: &'a str, calls: &'a [&'a Call], drift: Drift) -> Self {
        let is_unknown = |call: &&&Call| matches!(call.answer, Answer::Unknown { .. });
        let asks = calls.iter().filter(is_unknown).filter(|call| matches!(call.op, Op::Acquire { .. }));
        let mut book = Self { lock, calls, drift, holds: BTreeMap::new(), asks: asks.copied().collect() };
        let tokens = tokens(calls);
        for call in calls {
            book.note(call, &tokens, drift);
        }
        book.note_renewals(&tokens);
        book
    }

    fn note(&mut self, call: &'a Call, tokens: &HashMap<&str, u64>, drift: Drift) {
        let fence = match (&call.op, &call.answer) {
            (_, Answer::Granted { fence, .. } | Answer::Renewed { fence, .. }) => *fence,
            (_, Answer::Held { holders, .. } | Answer::Got { holders, .. }) if !holders.is_empty() => holders[0],
            (Op::Release { token }, _) if tokens.contains_key(token.as_str()) => tokens[token.as_str()],
            _ => return,
        };
        let facts = self.holds.entry(fence).or_default();
        match (&call.op, &call.answer) {
            (_, Answer::Granted { .. }) => facts.grants.push(call),
            (Op::Release { .. }, _) => facts.releases.push(call),
            _ => {}
        }
        let is_evidence = !matches!(call.answer, Answer::NotHolder | Answer::Unknown { .. } | Answer::Refused { .. });
        if let Some(to_us) = call.received_us.filter(|_| is_evidence) {
            facts.evidence.push(Evidence { call, from_us: decided_from_us(call, drift).min(to_us), to_us });
        }
    }

    /// By token, or by the owner that a grant was asked for.
    fn note_renewals(&mut self, tokens: &HashMap<&str, u64>) {
        let mut by_owner: HashMap<&str, Vec<u64>> = HashMap::new();
        for (fence, facts) in &self.holds {
            let evidence = facts.evidence.iter().map(|evidence| evidence.call);
            for owner in evidence.filter(|call| shows_own_hold(call)).filter_map(|call| owner_of(&call.op)) {
                by_owner.entry(owner).or_default().push(*fence);
            }
        }
        for call in self.calls {
            let fences: &[u64] = match &call.op {
                Op::Renew { by: Proof::Token(token), .. } => {
                    tokens.get(token.as_str()).map_or(&[], std::slice::from_ref)
                }
                op => owner_of(op).and_then(|owner| by_owner.get(owner)).map_or(&[], Vec::as_slice),
            };
            let named = match call.answer {
                Answer::Granted { fence, .. } | Answer::Renewed { fence, .. } => Some(fence),
                Answer::Unknown { .. } => None,
                _ => continue,
            };
            for fence in fences.iter().filter(|fence| named.is_none_or(|named| named == **fence)) {
                self.holds.entry(*fence).or_default().renewals.push(call);
            }
        }
        self.holds.values_mut().for_each(|facts| facts.renewals.dedup_by_key(|call| call.id));
    }

    /// The calls of unknown outcome that may have prolonged a hold which no answer carried, whose owner is not known.
    pub(super) fn unseen_renewals(&self) -> impl Iterator<Item = &'a Call> {
        let is_unknown = |call: &&Call| matches!(call.answer, Answer::Unknown { .. });
        self.calls.iter().copied().filter(is_unknown).filter(|call| owner_of(&call.op).is_some())
    }

    /// The acquires of unknown outcome that a hold which no answer carried can come from.
    pub(super) fn askers(&self, fence: u64, timing: &Timing) -> Vec<&'a Call> {
        let Some(facts) = self.holds.get(&fence) else { return Vec::new() };
        let shown_us = facts.evidence.iter().map(|evidence| evidence.to_us).min().unwrap_or(0);
        // It was granted after every hold before it was last in force.
        let lower = self.holds.range(..fence).filter_map(|(_, lower)| lower.in_force_until_us(self.drift));
        let after_us = lower.max().unwrap_or(0);
        let can_be = |ask: &&Call| {
            let late_us = latest_effect_us(ask, timing);
            ask.sent_us <= shown_us && late_us + timing.unavoidable_us(ask.sent_us, late_us) >= after_us
        };
        self.asks.iter().copied().filter(can_be).collect()
    }
}

impl HoldFacts<'_> {
    /// The last moment at which it was surely in force.
    fn in_force_until_us(&self, drift: Drift) -> Option<u64> {
        let shown = self.evidence.iter().map(|seen| seen.from_us);
        let claims = self.grants.iter().chain(&self.renewals);
        shown.chain(claims.filter_map(|call| self.counted_until_us(call, drift))).max()
    }

    /// The moment at which a release of it was acknowledged.
    pub(super) fn released_us(&self) -> Option<u64> {
        let acknowledged = self.releases.iter().filter(|call| matches!(call.answer, Answer::Released));
        acknowledged.filter_map(|call| call.received_us).min()
    }

    /// By the rule for clients: from the sending, less the margin; no longer than a release was sent, and than any
    /// shorter TTL that was asked for allows.
    pub(super) fn counted_until_us(&self, claim: &Call, drift: Drift) -> Option<u64> {
        let end_us = earliest_end_us(claim, drift)?;
        let (Answer::Granted { ttl_ms, .. } | Answer::Renewed { ttl_ms, .. }) = claim.answer else { return None };
        let shorter = self.renewals.iter().filter(|renewal| asked_ttl_ms(renewal) < ttl_ms).filter_map(|renewal| {
            let (short_ms, margin_us) = (asked_ttl_ms(renewal), drift.margin_us(asked_ttl_ms(renewal), 0));
            let is_over = renewal.received_us.is_some_and(|received_us| received_us < claim.sent_us)
                && !matches!(renewal.answer, Answer::Unknown { .. });
            (!is_over).then(|| (renewal.sent_us.max(claim.sent_us) + short_ms * 1_000).saturating_sub(margin_us))
        });
        let released = self.releases.iter().map(|release| release.sent_us);
        Some(shorter.chain(released).min().map_or(end_us, |sooner_us| sooner_us.min(end_us)))
    }
}

/// Whether the answer says that the caller itself is the holder.
fn shows_own_hold(call: &Call) -> bool {
    matches!(call.answer, Answer::Granted { .. } | Answer::Renewed { .. })
}

fn owner_of(op: &Op) -> Option<&str> {
    match op {
        Op::Acquire { owner, .. } => owner.as_deref(),
        Op::Renew { by: Proof::Owner(owner), .. } => Some(owner),
        Op::Renew { .. } | Op::Release { .. } | Op::Get => None,
    }
}

/// The TTL that was asked for; 0 if none was.
pub(super) fn asked_ttl_ms(call: &Call) -> u64 {
    match call.op {
        Op::Acquire { ttl_ms, .. } | Op::Renew { ttl_ms, .. } => ttl_ms,
        Op::Release { .. } | Op::Get => 0,
    }
}

/// From when on the cluster knows that the client of an acquire has gone, so that it is not granted any more. None
/// unless the client went away on purpose, and nothing was done meanwhile that may have hidden it.
pub(super) fn forgotten_us(ask: &Call, timing: &Timing) -> Option<u64> {
    let Answer::Unknown { why: Lost::Abandoned { at_us } } = ask.answer else { return None };
    let by_us = at_us + FORGOTTEN_AFTER_US + timing.noise_us;
    (ask.excuse.is_none() && timing.is_quiet(at_us, by_us)).then_some(by_us)
}

/// When a call of unknown outcome can still take effect, at the latest, if a leader leads.
pub(super) fn latest_effect_us(call: &Call, timing: &Timing) -> u64 {
    let by_deadline_us = call.sent_us + life_ms(call) * 1_000 + IN_FLIGHT_US;
    forgotten_us(call, timing).map_or(by_deadline_us, |forgotten_us| forgotten_us.min(by_deadline_us))
}
