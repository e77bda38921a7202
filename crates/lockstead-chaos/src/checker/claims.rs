//! Tokens and fences, each of which belongs to one grant.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;

use super::report::{Kind, Violation};
use crate::history::{Answer, Call, History, Op};

/// A fence or a token of two locks: the cluster has one counter, so whoever sees a fence on two of them, in whatever
/// answers, sees that it was granted twice.
pub(super) fn across_locks(history: &History) -> Vec<Violation> {
    let fences = |call| fences_of(call).iter().map(move |fence| (*fence, call));
    let tokens = |call| token_of(call).map(|token| (token, call));
    let twice = on_two_locks("fence", history.calls.iter().flat_map(fences));
    twice.into_iter().chain(on_two_locks("token", history.calls.iter().filter_map(tokens))).collect()
}

fn on_two_locks<'a, T: Copy + Eq + Hash + Debug>(
    what: &str,
    seen: impl Iterator<Item = (T, &'a Call)>,
) -> Vec<Violation> {
    let (mut first, mut told) = (HashMap::new(), HashSet::new());
    let mut violations = Vec::new();
    for (mark, call) in seen {
        let known: &Call = first.entry(mark).or_insert(call);
        if known.lock != call.lock && told.insert(mark) {
            let text = format!("{what} {mark:?} is one of lock {:?} in call {} too", known.lock, known.id);
            violations.push(Violation::new(Kind::FenceTwice, &call.lock, text, &[known, call]));
        }
    }
    violations
}

fn token_of(call: &Call) -> Option<&str> {
    match &call.answer {
        Answer::Granted { token, .. } => Some(token),
        _ => None,
    }
}

/// Grants with a fence below one that anybody had been told of before they were asked for, of whichever lock. Within a
/// lock the search finds them; once for each lock is enough.
pub(super) fn fallen_across_locks<'a>(history: &'a History) -> Vec<Violation> {
    let told_by = |call: &'a Call| Some((call.received_us?, *fences_of(call).first()?, call));
    let mut told: Vec<(u64, u64, &Call)> = history.calls.iter().filter_map(told_by).collect();
    told.sort_by_key(|(received_us, ..)| *received_us);
    let (mut told, mut highest) = (told.into_iter().peekable(), None::<(u64, &Call)>);
    let mut fallen: BTreeMap<&str, Violation> = BTreeMap::new();
    for (asked_us, fence, call) in asked_and_granted(history) {
        while let Some((_, fence, call)) = told.next_if(|(received_us, ..)| *received_us < asked_us) {
            highest = highest.filter(|(highest, _)| *highest >= fence).or(Some((fence, call)));
        }
        let Some((above, known)) = highest.filter(|(above, known)| *above > fence && known.lock != call.lock) else {
            continue;
        };
        let text = format!(
            "call {} grants fence {fence} after fence {above} was granted, shown by call {}",
            call.id, known.id
        );
        let violation = || Violation::new(Kind::FenceFell, &call.lock, text, &[known, call]);
        fallen.entry(&call.lock).or_insert_with(violation);
    }
    fallen.into_values().collect()
}

/// The new grants, by when they were first asked for. What an owner already held is none.
fn asked_and_granted(history: &History) -> Vec<(u64, u64, &Call)> {
    let mut first_us: HashMap<(&str, &String), u64> = HashMap::new();
    for call in &history.calls {
        let Some(request_id) = request_of(call) else { continue };
        let first_us = first_us.entry((&call.lock, request_id)).or_insert(call.sent_us);
        *first_us = call.sent_us.min(*first_us);
    }
    let asked_us =
        |call: &Call| request_of(call).map_or(call.sent_us, |request_id| first_us[&(call.lock.as_str(), request_id)]);
    let granted = history.calls.iter().filter_map(|call| match call.answer {
        Answer::Granted { fence, renewed: false, .. } => Some((asked_us(call), fence, call)),
        _ => None,
    });
    let mut granted: Vec<(u64, u64, &Call)> = granted.collect();
    granted.sort_by_key(|(asked_us, ..)| *asked_us);
    granted
}

/// The fences that an answer tells of.
fn fences_of(call: &Call) -> &[u64] {
    match &call.answer {
        Answer::Granted { fence, .. } | Answer::Renewed { fence, .. } => std::slice::from_ref(fence),
        Answer::Held { holders, .. } | Answer::Got { holders, .. } => holders,
        _ => &[],
    }
}

/// Of one lock: two tokens for a fence, two fences for a token, or two holders in an answer.
pub(super) fn within_lock(lock: &str, calls: &[&Call]) -> Vec<Violation> {
    let names_several = |call: &&Call| fences_of(call).len() > 1;
    let several = calls.iter().copied().filter(names_several).map(|call| {
        let text = format!("call {} names the fences {:?} at once", call.id, fences_of(call));
        Violation::new(Kind::TwoHolders, lock, text, &[call])
    });
    several.chain(mixed_up(lock, calls)).collect()
}

fn mixed_up(lock: &str, calls: &[&Call]) -> Vec<Violation> {
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
