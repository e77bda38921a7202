//! What an answer of a node means to a history.

use serde_json::Value;

use crate::history::{Answer, Lost, Op};
use crate::http;

/// Reads the answer to an operation. A success that lacks a field says nothing that could be judged: it counts as an
/// error of the server.
pub(super) fn read(op: &Op, answer: &http::Answer) -> Answer {
    let body = &answer.body;
    let read = match (op, answer.status, answer.code()) {
        (Op::Acquire { .. }, 200, _) => granted(body),
        (Op::Acquire { .. }, 409, "held") => Some(Answer::Held {
            holders: answer.holder_fences(),
            queue_len: body["error"]["queue_len"].as_u64().unwrap_or_default(),
        }),
        (Op::Release { .. }, 200, _) => Some(Answer::Released),
        (Op::Renew { .. }, 200, _) => renewed(body),
        (Op::Release { .. } | Op::Renew { .. }, 409, "not_holder") => Some(Answer::NotHolder),
        (Op::Get, 200, _) => {
            let waiters = body["waiters"].as_array().map_or(0, Vec::len);
            Some(Answer::Got { holders: answer.holder_fences(), waiters: u64::try_from(waiters).unwrap_or(u64::MAX) })
        }
        (Op::Get, 404, "not_held") => Some(Answer::NotHeld),
        (_, status, code) => Some(Answer::refused(status, code)),
    };
    read.unwrap_or(Answer::Unknown { why: Lost::ServerError { status: answer.status } })
}

fn granted(body: &Value) -> Option<Answer> {
    Some(Answer::Granted {
        token: body["token"].as_str()?.to_owned(),
        fence: body["fence"].as_u64()?,
        ttl_ms: body["ttl_ms"].as_u64()?,
        expires_in_ms: body["expires_in_ms"].as_u64()?,
        waited_ms: body["waited_ms"].as_u64().unwrap_or_default(),
        renewed: body["renewed"].as_bool().unwrap_or_default(),
    })
}

fn renewed(body: &Value) -> Option<Answer> {
    Some(Answer::Renewed {
        fence: body["fence"].as_u64()?,
        ttl_ms: body["ttl_ms"].as_u64()?,
        expires_in_ms: body["expires_in_ms"].as_u64()?,
        waited_ms: body["waited_ms"].as_u64().unwrap_or_default(),
    })
}
