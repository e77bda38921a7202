//! Tokens and fences, each of which belongs to one grant.

use std::collections::{HashMap, HashSet};

use super::report::{Kind, Violation};
use crate::history::{Answer, Call, History, Op};

/// A fence of two locks: the cluster has one counter, so whoever sees a fence on two of them, in whatever answers, sees that it
/// was granted twice.
pub(super) fn across_locks(history: &History) -> Vec<Violation> {
    let mut first: HashMap<u64, &Call> = HashMap::new();
    let mut told: HashSet<u64> = HashSet::new();
    let mut violations = Vec::new();
    for call in &history.calls {
        for fence in fences_of(&call.answer) {
            let known = *first.entry(*fence).or_insert(call);
            if known.lock != call.lock && told.insert(*fence) {
                let text = format!("fence {fence} is one of lock {:?} in call {} too", known.lock, known.id);
                violations.push(Violation::new(Kind::FenceTwice, &call.lock, text, &[known, call]));
            }
        }
    }
    violations
}

/// The fences that an answer tells of.
fn fences_of(answer: &Answer) -> &[u64] {
    match answer {
        Answer::Granted { fence, .. } | Answer::Renewed { fence, .. } => std::slice::from_ref(fence),
        Answer::Held { holders, .. } | Answer::Got { holders, .. } => holders,
        _ => &[],
    }
}

/// Of one lock: two tokens for a fence, or two fences for a token.
pub(super) fn within_lock(lock: &str, calls: &[&Call]) -> Vec<Violation> {
    let mut by_fence: HashMap<u64, (&str, &Call)> = HashMap::new();
    let mut by_token: HashMap<&str, (u64, &Call)> = HashMap::new();
    let mut violations = Vec::new();
    for call in calls {
        let Answer::Granted { token, fence, .. } = &call.answer else { continue };
        let (known_token, known) = *by_fence.entry(*fence).or_insert((token, call));
        if known_token != token {
            let (kind, what) = match (request_of(known), request_of(call)) {
                (Some(one), Some(other)) if one == other => (Kind::RetryForgotten, "its retry"),
                _ => (Kind::FenceTwice, "another"),
            };
            let text =
                format!("fence {fence} has one token in call {}, and another for {what}, call {}", known.id, call.id);
            violations.push(Violation::new(kind, lock, text, &[known, call]));
        }
        let (known_fence, known) = *by_token.entry(token).or_insert((*fence, call));
        if known_fence != *fence {
            let text = format!("one token for the fences {known_fence} and {fence}");
            violations.push(Violation::new(Kind::FenceTwice, lock, text, &[known, call]));
        }
    }
    violations
}

fn request_of(call: &Call) -> Option<&String> {
    match &call.op {
        Op::Acquire { request_id, .. } => request_id.as_ref(),
        _ => None,
    }
}
