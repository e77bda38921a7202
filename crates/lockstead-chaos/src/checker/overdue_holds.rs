//! Holds that are seen later than they may last.

use super::book::{Book, Evidence, HoldFacts, asked_ttl_ms, forgotten_us, latest_effect_us};
use super::leaderless::Timing;
use super::report::{Kind, Violation, seconds};
use crate::history::{Answer, Call};

/// Until when a hold lasts, if this call was the last to prolong it and a leader leads all the time.
#[derive(Clone, Copy)]
pub(super) struct Bound<'a> {
    pub(super) call: &'a Call,
    pub(super) end_us: u64,
    role: Role,
}

/// What a call was to a hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It was granted it, or was told so again.
    Grant,
    /// It may have prolonged it.
    Renewal,
}

/// Answers that show a hold after the latest moment at which it can have been in force.
pub(super) fn check(book: &Book<'_>, timing: &Timing) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (fence, facts) in &book.holds {
        let bounds = bounds(book, *fence, facts, timing);
        let late = || facts.evidence.iter().find_map(|seen| late(book, *fence, &bounds, seen, timing));
        violations.extend(granted_to_the_gone(book, *fence, facts, timing).or_else(late));
    }
    violations
}

/// All bounds of a hold. None for one that nobody can have been granted.
pub(super) fn bounds<'a>(book: &Book<'a>, fence: u64, facts: &HoldFacts<'a>, timing: &Timing) -> Vec<Bound<'a>> {
    let answered = |call: &'a Call, role| Bound { call, end_us: answered_end_us(call, timing), role };
    let grants = facts.grants.iter().map(|call| answered(call, Role::Grant));
    let renewals = facts.renewals.iter().map(|call| answered(call, Role::Renewal));
    let mut bounds: Vec<Bound<'a>> = grants.chain(renewals).collect();
    if facts.grants.is_empty() {
        let shown_us = facts.evidence.iter().map(|seen| seen.to_us).min().unwrap_or(u64::MAX);
        bounds.extend(book.askers(fence, timing).into_iter().map(|call| {
            let granted_us = latest_effect_us(call, timing).min(shown_us);
            Bound { call, end_us: granted_us + asked_ttl_ms(call) * 1_000, role: Role::Grant }
        }));
        bounds.extend(book.unseen_renewals().map(|call| answered(call, Role::Renewal)));
    }
    bounds
}

/// From an answer: what was left when it was written, counted from its receipt, and what a node that passed the call on
/// took off: it counts the whole time of passing on, of which the hold may have had none. Never more than the TTL.
/// Without an answer: the whole TTL, from the latest moment at which the call may have taken effect.
fn answered_end_us(call: &Call, timing: &Timing) -> u64 {
    match (&call.answer, call.received_us) {
        (
            Answer::Granted { ttl_ms, expires_in_ms, .. } | Answer::Renewed { ttl_ms, expires_in_ms, .. },
            Some(received_us),
        ) => {
            let passed_on_us = received_us.saturating_sub(call.sent_us);
            let left_us = |left_ms: u64| left_ms.saturating_add(1).saturating_mul(1_000);
            received_us.saturating_add(left_us(*expires_in_ms).saturating_add(passed_on_us).min(left_us(*ttl_ms)))
        }
        _ => latest_effect_us(call, timing) + asked_ttl_ms(call) * 1_000,
    }
}

fn late(book: &Book<'_>, fence: u64, bounds: &[Bound<'_>], seen: &Evidence<'_>, timing: &Timing) -> Option<Violation> {
    let before = bounds.iter().filter(|bound| bound.call.id != seen.call.id && bound.call.sent_us < seen.to_us);
    // Without the grant nothing is known: a renewal by owner may have been about another hold.
    if !before.clone().any(|bound| bound.role == Role::Grant) {
        return None;
    }
    let allowed = before.map(|bound| (bound.end_us + timing.allowance_us(bound.call.sent_us, seen.from_us), bound));
    let (allowed_us, last) = allowed.max_by_key(|(allowed_us, _)| *allowed_us)?;
    let text = format!(
        "fence {fence} ends at {} by call {}, and may be seen until {}, but call {} still finds it at {}",
        seconds(last.end_us),
        last.call.id,
        seconds(allowed_us),
        seen.call.id,
        seconds(seen.from_us),
    );
    let calls = [last.call, seen.call];
    (seen.from_us > allowed_us).then(|| Violation::new(Kind::LateExpiry, book.lock, text, &calls))
}

/// A hold that no answer carried, at a time when all who had asked for one were gone: no place in the queue outlives
/// its client.
fn granted_to_the_gone(book: &Book<'_>, fence: u64, facts: &HoldFacts<'_>, timing: &Timing) -> Option<Violation> {
    let is_carried = !facts.grants.is_empty() || !facts.renewals.is_empty();
    if is_carried || !book.askers(fence, timing).is_empty() {
        return None;
    }
    let seen = facts.evidence.iter().min_by_key(|seen| seen.to_us)?;
    let before = book.asks.iter().copied().filter(|ask| ask.sent_us <= seen.to_us);
    let gone: Vec<&Call> = before.filter(|ask| forgotten_us(ask, timing).is_some()).collect();
    let last = gone.iter().max_by_key(|ask| ask.sent_us)?;
    let text = format!(
        "call {} shows fence {fence}, but all who can have been granted it had gone, as the client of call {}",
        seen.call.id, last.id,
    );
    let lower = book.holds.range(..fence).flat_map(|(_, lower)| lower.evidence.iter());
    let mut calls: Vec<&Call> = lower.max_by_key(|seen| seen.from_us).map(|seen| seen.call).into_iter().collect();
    calls.extend([seen.call, last]);
    Some(Violation::new(Kind::GrantedToTheGone, book.lock, text, &calls))
}
