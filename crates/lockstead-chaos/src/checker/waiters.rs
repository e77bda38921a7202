//! Waiters of a lock that nobody can hold.
//!
//! Only idle locks are looked for. That waiters are served in the order of their arrival is not checked: arrivals are
//! not known.

use super::book::{Book, Evidence, asked_ttl_ms, forgotten_us, latest_effect_us};
use super::leaderless::Timing;
use super::overdue_holds::bounds;
use super::report::{Kind, Violation, seconds};
use crate::history::{Answer, Call, Op};

/// A time in which somebody may hold the lock. Its end is off by no more than the allowance since `set_us`.
#[derive(Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit stands last")]
struct Busy {
    begin_us: u64,
    end_us: u64,
    set_us: u64,
}

/// A time in which nobody can hold the lock, or only by an allowed lateness of what ended before it.
#[derive(Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit stands last")]
struct Idle {
    begin_us: u64,
    end_us: u64,
    set_us: u64,
}

/// Waiters that waited longer than is allowed while the lock was idle.
pub(super) fn check(book: &Book<'_>, timing: &Timing) -> Vec<Violation> {
    let waits: Vec<(&Call, u64)> = book.calls.iter().filter_map(|call| Some((*call, waited_until_us(call)?))).collect();
    if waits.is_empty() {
        return Vec::new();
    }
    let idle = idle(book, timing);
    waits.iter().filter_map(|(call, until_us)| blocked(book, call, *until_us, &idle, timing)).collect()
}

/// Until when a call surely waited, counted from when it was sent.
fn waited_until_us(call: &Call) -> Option<u64> {
    let Op::Acquire { wait_ms, .. } = call.op else { return None };
    let received_us = call.received_us?;
    let waited_ms = match call.answer {
        Answer::Granted { waited_ms, renewed: false, .. } => waited_ms,
        Answer::Held { .. } => wait_ms,
        _ => return None,
    };
    (waited_ms > 0 && call.excuse.is_none())
        .then(|| call.sent_us.saturating_add(waited_ms.saturating_mul(1_000)).min(received_us))
}

fn idle(book: &Book<'_>, timing: &Timing) -> Vec<Idle> {
    let mut busy = busy(book, timing);
    busy.sort_by_key(|busy| busy.begin_us);
    let mut idle = Vec::new();
    let mut last = Busy { begin_us: 0, end_us: 0, set_us: 0 };
    for next in busy {
        if next.begin_us > last.end_us {
            idle.push(Idle { begin_us: last.end_us, end_us: next.begin_us, set_us: last.set_us });
        }
        if next.end_us > last.end_us {
            last = next;
        }
    }
    idle.push(Idle { begin_us: last.end_us, end_us: u64::MAX, set_us: last.set_us });
    idle
}

fn busy(book: &Book<'_>, timing: &Timing) -> Vec<Busy> {
    let held = book.holds.iter().filter_map(|(fence, facts)| {
        let is_grant =
            |seen: &&Evidence<'_>| facts.grants.is_empty() || matches!(seen.call.answer, Answer::Granted { .. });
        let begin_us = facts.evidence.iter().filter(is_grant).map(|seen| seen.from_us).min()?;
        let bounds = bounds(book, *fence, facts, timing);
        let last = bounds.iter().max_by_key(|bound| bound.end_us)?;
        let (end_us, set_us) = match facts.released_us().filter(|released_us| *released_us < last.end_us) {
            Some(released_us) => (released_us, released_us),
            None => (last.end_us, last.call.sent_us),
        };
        Some(Busy { begin_us, end_us, set_us })
    });
    held.chain(book.asks.iter().map(|ask| unseen(book, ask, timing))).collect()
}

/// The hold that an acquire of unknown outcome may have been granted. If the cluster knows that its client has gone, it
/// gets none any more, and the one that it has is over as soon as another is seen.
fn unseen(book: &Book<'_>, ask: &Call, timing: &Timing) -> Busy {
    let by_ttl_us = latest_effect_us(ask, timing) + asked_ttl_ms(ask) * 1_000;
    let by_another_us = forgotten_us(ask, timing).and_then(|forgotten_us| {
        let others = book.holds.values().filter(|facts| !facts.grants.is_empty()).flat_map(|facts| &facts.evidence);
        others.filter(|seen| seen.from_us >= forgotten_us).map(|seen| seen.to_us).min()
    });
    let end_us = by_another_us.map_or(by_ttl_us, |by_another_us| by_another_us.min(by_ttl_us));
    Busy { begin_us: ask.sent_us, end_us, set_us: ask.sent_us }
}

fn blocked(book: &Book<'_>, call: &Call, until_us: u64, idle: &[Idle], timing: &Timing) -> Option<Violation> {
    let first = idle.partition_point(|idle| idle.end_us <= call.sent_us);
    for idle in idle[first..].iter().take_while(|idle| idle.begin_us < until_us) {
        let (begin_us, end_us) = (idle.begin_us.max(call.sent_us), idle.end_us.min(until_us));
        // A node that was cut off or stopped keeps its waiters from the leader, and nobody sees when.
        for (begin_us, end_us) in timing.quiet_parts(begin_us, end_us) {
            let allowed_us = timing.allowance_us(idle.set_us.min(begin_us), end_us);
            if end_us - begin_us > allowed_us {
                return Some(explain(book, call, (begin_us, end_us), allowed_us));
            }
        }
    }
    None
}

fn explain(book: &Book<'_>, call: &Call, (begin_us, end_us): (u64, u64), allowed_us: u64) -> Violation {
    let text = format!(
        "call {} waits from {} to {} although nobody can hold the lock; {} ms are allowed",
        call.id,
        seconds(begin_us),
        seconds(end_us),
        allowed_us / 1_000,
    );
    let is_meanwhile = |other: &&&Call| other.sent_us < end_us && other.received_us.is_none_or(|end| end > begin_us);
    let mut calls: Vec<&Call> = book.calls.iter().filter(is_meanwhile).copied().collect();
    calls.push(call);
    Violation::new(Kind::Blocked, book.lock, text, &calls)
}
