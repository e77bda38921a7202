//! What the clients themselves counted on, and what a register guarded by fences saw of them.

use super::book::{Book, HoldFacts};
use super::report::{Kind, Violation, seconds};
use crate::history::{Call, Drift, Write};

/// The register takes a fence if, and only if, it has taken none above it.
pub(super) fn rejects_only_lower(lock: &str, writes: &[&Write]) -> Vec<Violation> {
    let mut sorted = writes.to_vec();
    sorted.sort_by_key(|write| (write.at_us, !write.accepted, write.fence));
    let mut highest: Option<&Write> = None;
    let mut violations = Vec::new();
    for write in sorted {
        let above = highest.filter(|highest| highest.fence > write.fence);
        let (kind, text) = match (write.accepted, above) {
            (true, Some(above)) => {
                (Kind::RegisterFell, format!("fence {} is accepted after fence {}", write.fence, above.fence))
            }
            (false, None) => (Kind::RegisterRefused, format!("fence {} is refused", write.fence)),
            (true, None) => {
                highest = Some(write);
                continue;
            }
            (false, Some(_)) => continue,
        };
        let shown: Vec<&Write> = above.into_iter().chain([write]).collect();
        violations.push(Violation::new(kind, lock, text, &[]).with_writes(&shown));
    }
    violations
}

/// Clients that count on a lock after another has been told that it holds it, or whose write is refused meanwhile.
pub(super) fn overlaps(book: &Book<'_>, writes: &[&Write], drift: Drift) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut next: Option<&Call> = None;
    for (fence, facts) in book.holds.iter().rev() {
        let overlap = next.and_then(|next| counted_on_beyond(facts, next, drift));
        violations.extend(overlap.map(|(call, until_us, next)| {
            let text = format!(
                "the client of call {} counts on fence {fence} until {}, but call {} was granted the lock before",
                call.id,
                seconds(until_us),
                next.id,
            );
            Violation::new(Kind::Overlap, book.lock, text, &[call, next])
        }));
        let received = facts.grants.iter().copied().chain(next).filter(|call| call.received_us.is_some());
        next = received.min_by_key(|call| call.received_us);
    }
    violations.extend(writes.iter().filter_map(|write| refused_holder(book, write, drift)));
    violations
}

/// The answer by which a client counts on a hold past the moment at which `next` was received.
fn counted_on_beyond<'a>(facts: &HoldFacts<'a>, next: &'a Call, drift: Drift) -> Option<(&'a Call, u64, &'a Call)> {
    let next_us = next.received_us?;
    let (call, until_us) = counted_on(facts, next_us, drift)?;
    (until_us > next_us).then_some((call, until_us, next))
}

fn refused_holder(book: &Book<'_>, write: &Write, drift: Drift) -> Option<Violation> {
    let facts = book.holds.get(&write.fence).filter(|_| !write.accepted)?;
    let (call, until_us) = counted_on(facts, write.at_us, drift)?;
    let text = format!(
        "client {} counts on fence {} until {}, but the register has seen a higher one",
        write.client,
        write.fence,
        seconds(until_us),
    );
    let violation = || Violation::new(Kind::Overlap, book.lock, text, &[call]).with_writes(&[write]);
    (until_us > write.at_us).then(violation)
}

/// Until when clients count on a hold by the answers that they have at `now_us`, and the answer that says so.
fn counted_on<'a>(facts: &HoldFacts<'a>, now_us: u64, drift: Drift) -> Option<(&'a Call, u64)> {
    let claims = facts.grants.iter().chain(&facts.renewals).copied();
    let known = claims.filter(|call| call.received_us.is_some_and(|received_us| received_us <= now_us));
    known.filter_map(|call| Some((call, facts.counted_until_us(call, drift)?))).max_by_key(|(_, until_us)| *until_us)
}
