//! Calls as people read them: one line each.

use std::fmt::{self, Display, Formatter};

use super::{Answer, Call, Lost, Op, Proof};

/// A moment of the run, in seconds.
struct At(u64);

impl Display for At {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { id, client, node, op, answer, sent_us, received_us, excuse, .. } = self;
        write!(f, "{}–", At(*sent_us))?;
        match received_us {
            Some(received_us) => write!(f, "{} s", At(*received_us))?,
            None => write!(f, "?")?,
        }
        write!(f, " call {id}, client {client}, node {node}: {op} → {answer}")?;
        excuse.map_or(Ok(()), |excuse| write!(f, " (excused: {excuse:?})"))
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { ttl_ms, wait_ms, owner, request_id, queued_ms } => {
                write!(f, "acquire for {ttl_ms} ms")?;
                if *wait_ms > 0 {
                    write!(f, ", waiting {wait_ms} ms")?;
                }
                if *queued_ms > 0 {
                    write!(f, ", queued {queued_ms} ms")?;
                }
                if let Some(owner) = owner {
                    write!(f, ", as {owner:?}")?;
                }
                request_id.as_ref().map_or(Ok(()), |request_id| write!(f, ", request {request_id:?}"))
            }
            Self::Release { token } => write!(f, "release by {token:?}"),
            Self::Renew { by: Proof::Token(token), ttl_ms } => write!(f, "renew by {token:?} for {ttl_ms} ms"),
            Self::Renew { by: Proof::Owner(owner), ttl_ms } => write!(f, "renew as {owner:?} for {ttl_ms} ms"),
            Self::Get => write!(f, "get"),
        }
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { token, fence, ttl_ms, expires_in_ms, waited_ms, renewed } => {
                let how = if *renewed { "renewed" } else { "granted" };
                write!(f, "{how} fence {fence} for {ttl_ms} ms, {expires_in_ms} left, waited {waited_ms} ({token:?})")
            }
            Self::Held { holders, queue_len } => write!(f, "held by {holders:?}, {queue_len} waiting"),
            Self::Released => write!(f, "released"),
            Self::NotHolder => write!(f, "not holder"),
            Self::Renewed { fence, ttl_ms, expires_in_ms, .. } => {
                write!(f, "renewed fence {fence} for {ttl_ms} ms, {expires_in_ms} left")
            }
            Self::Got { holders, waiters } => write!(f, "held by {holders:?}, {waiters} waiting"),
            Self::NotHeld => write!(f, "not held"),
            Self::Refused { status, code } => write!(f, "refused: {status} {code}"),
            Self::Unknown { why } => write!(f, "unknown: {why}"),
        }
    }
}

impl Display for Lost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutcomeUnknown => write!(f, "said the service"),
            Self::ConnectionLost { at_us } => write!(f, "connection lost at {} s", At(*at_us)),
            Self::Abandoned { at_us } => write!(f, "abandoned by the client at {} s", At(*at_us)),
            Self::GaveUp { at_us } => write!(f, "the client gave up at {} s", At(*at_us)),
            Self::ServerError { status } => write!(f, "status {status}"),
            Self::RunEnded => write!(f, "the run ended"),
        }
    }
}
