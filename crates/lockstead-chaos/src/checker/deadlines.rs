//! Each request ends by its own deadline, with an answer that says something.

use super::limits::Limits;
use super::lock_calls::left_us;
use super::report::{Kind, Violation};
use crate::history::{Answer, Call, History, Lost, Op};

/// What a request may take beyond its wait.
const BEYOND_WAIT_MS: u64 = 5_000;

/// Requests past their deadline, and answers that are none. What the run itself did to a call excuses both.
pub(super) fn check(history: &History, limits: &Limits) -> Vec<Violation> {
    let unexcused = history.calls.iter().filter(|call| call.excuse.is_none());
    unexcused.filter_map(|call| overdue(call, limits).or_else(|| broken(call))).collect()
}

fn overdue(call: &Call, limits: &Limits) -> Option<Violation> {
    let ended_us = call.received_us.or_else(|| left_us(call))?;
    let took_ms = ended_us.saturating_sub(call.sent_us) / 1_000;
    let allowed_ms = life_ms(call) + limits.noise_ms;
    let text = format!("call {} took {took_ms} ms, {allowed_ms} are allowed", call.id);
    (took_ms > allowed_ms).then(|| Violation::new(Kind::Overdue, &call.lock, text, &[call]))
}

/// The deadline of a request, counted from its arrival.
pub(super) fn life_ms(call: &Call) -> u64 {
    match call.op {
        Op::Acquire { wait_ms, .. } => wait_ms + BEYOND_WAIT_MS,
        Op::Release { .. } | Op::Renew { .. } | Op::Get => BEYOND_WAIT_MS,
    }
}

fn broken(call: &Call) -> Option<Violation> {
    let what = match call.answer {
        Answer::Unknown { why: Lost::ConnectionLost { .. } } => "its connection was closed".to_owned(),
        Answer::Unknown { why: Lost::ServerError { status } } => format!("the answer was a {status}"),
        _ => return None,
    };
    let text = format!("call {} got no answer, {what}, and nothing was done to it", call.id);
    Some(Violation::new(Kind::BrokenAnswer, &call.lock, text, &[call]))
}
