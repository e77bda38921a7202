//! What answers say of the time that a hold has: the checks of ends believe them, so they are compared with what was
//! asked for.

use std::collections::HashMap;

use super::book::asked_ttl_ms;
use super::lock_calls::decided_from_us;
use super::report::{Kind, Violation};
use crate::history::{Answer, Call, Drift, Op};

/// How often a request id was used.
type Uses<'a> = HashMap<&'a str, u64>;

/// Of one lock: answers with more time left than the TTL, or with another TTL than the call asked for, or with less
/// time left than one that began with the call can have.
pub(super) fn check(lock: &str, calls: &[&Call], drift: Drift) -> Vec<Violation> {
    let mut uses = Uses::new();
    for request_id in calls.iter().filter_map(|call| request_of(call)) {
        *uses.entry(request_id).or_default() += 1;
    }
    let wrong = calls.iter().filter_map(|call| Some((call, what_is_wrong(call, &uses, drift)?)));
    wrong.map(|(call, text)| Violation::new(Kind::WrongTtl, lock, text, &[call])).collect()
}

fn what_is_wrong(call: &Call, uses: &Uses<'_>, drift: Drift) -> Option<String> {
    let (Answer::Granted { ttl_ms, expires_in_ms, .. } | Answer::Renewed { ttl_ms, expires_in_ms, .. }) = call.answer
    else {
        return None;
    };
    let id = call.id;
    if expires_in_ms > ttl_ms {
        return Some(format!("call {id} is told of {expires_in_ms} ms left of a TTL of {ttl_ms} ms"));
    }
    if !begins_the_ttl(call, uses) {
        return None;
    }
    let asked_ms = asked_ttl_ms(call);
    if asked_ms != ttl_ms {
        return Some(format!("call {id} asks for a TTL of {asked_ms} ms, and is told of one of {ttl_ms} ms"));
    }
    // The leader takes off the time since its decision, and a node that passed the call on takes it off once more.
    let passed_us = 2 * call.received_us?.saturating_sub(decided_from_us(call, drift)) + drift.margin_us(ttl_ms, 0);
    let least_ms = ttl_ms.saturating_sub(passed_us / 1_000);
    let too_short =
        || format!("call {id} begins a TTL of {ttl_ms} ms, but is told of only {expires_in_ms} ms left of it");
    (expires_in_ms < least_ms).then(too_short)
}

/// Whether the TTL in the answer is that of this very call: not that of an earlier try, and not that of another request
/// of its owner.
fn begins_the_ttl(call: &Call, uses: &Uses<'_>) -> bool {
    match &call.op {
        Op::Renew { .. } => true,
        Op::Acquire { owner: None, .. } => request_of(call).is_none_or(|request_id| uses[request_id] == 1),
        _ => false,
    }
}

fn request_of(call: &Call) -> Option<&str> {
    match &call.op {
        Op::Acquire { request_id, .. } => request_id.as_deref(),
        _ => None,
    }
}
