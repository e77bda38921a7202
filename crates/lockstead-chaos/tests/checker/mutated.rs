//! Correct histories in which something was changed, so that they are surely wrong.

use lockstead_chaos::checker::{Kind, Limits, check};
use lockstead_chaos::dice::Dice;
use lockstead_chaos::history::{Answer, Call, History, Op};

use crate::clients::{Plan, run};

/// Changes one history after the other, and expects each changed one to be rejected with one of these kinds.
fn all_rejected(change: impl Fn(&mut History, &mut Dice) -> Option<()>, expected: &[Kind]) {
    let mut changed = 0;
    for seed in 0..300 {
        let mut history = run(Plan::correct(seed));
        if change(&mut history, &mut Dice::new(seed, 1)).is_none() {
            continue;
        }
        changed += 1;
        let report = check(&history, &Limits::default());
        let is_found = report.violations.iter().any(|violation| expected.contains(&violation.kind));
        assert!(is_found, "seed {seed}: {report}");
    }
    assert!(changed >= 15, "only {changed} histories could be changed");
}

/// Two fresh grants of one lock, the second asked for after the first was received.
fn two_grants(history: &History, dice: &mut Dice) -> Option<(usize, usize)> {
    let fresh = |index: &usize| matches!(history.calls[*index].answer, Answer::Granted { renewed: false, .. });
    let grants: Vec<usize> = (0..history.calls.len()).filter(fresh).collect();
    let (first, second) =
        (grants[dice.index(grants.len() / 2)], grants[grants.len() - 1 - dice.index(grants.len() / 3)]);
    let (one, other) = (&history.calls[first], &history.calls[second]);
    let is_apart = one.lock == other.lock && one.received_us? < other.sent_us && fence(one)? < fence(other)?;
    is_apart.then_some((first, second))
}

fn fence(call: &Call) -> Option<u64> {
    match call.answer {
        Answer::Granted { fence, .. } => Some(fence),
        _ => None,
    }
}

fn set_fence(call: &mut Call, new: u64) {
    if let Answer::Granted { fence, .. } = &mut call.answer {
        *fence = new;
    }
}

#[test]
fn a_fence_below_an_earlier_one_is_found() {
    let lower = |history: &mut History, dice: &mut Dice| {
        let (first, second) = two_grants(history, dice)?;
        let (low, high) = (fence(&history.calls[first])?, fence(&history.calls[second])?);
        set_fence(&mut history.calls[first], high);
        set_fence(&mut history.calls[second], low);
        Some(())
    };
    // What it looks like depends on what else was seen of the two holds.
    all_rejected(lower, &Kind::ALL);
}

#[test]
fn a_fence_granted_to_two_is_found() {
    let twice = |history: &mut History, dice: &mut Dice| {
        let (first, second) = two_grants(history, dice)?;
        let low = fence(&history.calls[first])?;
        set_fence(&mut history.calls[second], low);
        Some(())
    };
    all_rejected(twice, &[Kind::FenceTwice, Kind::RetryForgotten]);
}

#[test]
fn a_grant_in_the_middle_of_another_hold_is_found() {
    let intrude = |history: &mut History, dice: &mut Dice| {
        let is_long = |call: &&Call| match (&call.answer, call.received_us) {
            (Answer::Granted { expires_in_ms, waited_ms, .. }, Some(received_us)) => {
                call.sent_us + (waited_ms + expires_in_ms) * 1_000 > received_us + 100_000
            }
            _ => false,
        };
        let is_released = |token: &String| {
            history.calls.iter().any(|call| matches!(&call.op, Op::Release { token: released } if released == token))
        };
        let is_kept = |call: &&Call| matches!(&call.answer, Answer::Granted { token, .. } if !is_released(token));
        let holders: Vec<&Call> = history.calls.iter().filter(is_long).filter(is_kept).collect();
        let holder = (*holders.get(dice.index(holders.len()))?).clone();
        let Answer::Granted { ttl_ms, .. } = holder.answer else { return None };
        // What may have shortened the hold unseen would excuse the second one.
        if history.calls.iter().any(|call| call.lock == holder.lock && may_shorten(call, &holder, ttl_ms)) {
            return None;
        }
        let (token, sent_us) = ("an intruder's".to_owned(), holder.received_us? + 10_000);
        let fence = 1_000_000;
        let answer = Answer::Granted { token, fence, ttl_ms: 100, expires_in_ms: 100, waited_ms: 0, renewed: false };
        let op = Op::Acquire { ttl_ms: 100, wait_ms: 0, owner: None, request_id: None, queued_ms: 0 };
        let received_us = Some(sent_us + 1_000);
        history.calls.push(Call { id: 1_000_000, op, sent_us, received_us, answer, ..holder });
        Some(())
    };
    let kinds = [Kind::EarlyGrant, Kind::TwoHolders, Kind::Overlap, Kind::FenceFell];
    all_rejected(intrude, &kinds);
}

fn may_shorten(call: &Call, holder: &Call, ttl_ms: u64) -> bool {
    let (Op::Renew { ttl_ms: shorter, .. } | Op::Acquire { ttl_ms: shorter, .. }) = call.op else { return false };
    call.id != holder.id && shorter < ttl_ms && call.client / 2 == holder.client / 2
}
