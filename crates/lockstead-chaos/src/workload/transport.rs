//! How a client calls a node, and what it can know when no answer comes.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Endpoint, Ground, answers};
use crate::clock::{ms, now, secs};
use crate::history::{Answer, Call, Lost, Op, Proof};
use crate::http::{Conn, request};

/// By the product's rule a request ends by its `wait_ms` and so much more; the rest is for the machine.
const REQUEST_GRACE: Duration = secs(5);
const MACHINE_GRACE: Duration = secs(2);
/// How often a client that waits looks up.
const LOOK_UP: Duration = ms(250);

/// For how long a client waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until the request is past its own deadline, and something is wrong with the service.
    Full,
    /// So long on top of what the request may wait; then it goes elsewhere.
    Short(Duration),
}

/// A request: to which node, for which lock, and for how long its answer is waited for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) at: Arc<Endpoint>,
    pub(super) lock: String,
    pub(super) op: Op,
    pub(super) patience: Patience,
}

/// What came of a request.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Before it went out.
    pub(super) sent: Instant,
    pub(super) answer: Answer,
}

/// The connections of one client, one for each node, and each used again as long as it lasts.
#[derive(Debug)]
pub(super) struct Transport {
    client: u32,
    conns: BTreeMap<u64, Conn>,
}

impl Transport {
    pub(super) fn new(client: u32) -> Self {
        Self { client, conns: BTreeMap::new() }
    }

    /// One try. `None` if nothing of it ever went out.
    pub(super) fn call(&mut self, ground: &Ground, ask: &Ask) -> Option<Told> {
        let endpoint = &ask.at;
        self.conns.retain(|node, _| ground.endpoints.knows(*node));
        let kept = self.conns.remove(&endpoint.node).filter(Conn::is_idle);
        let is_fresh = kept.is_none();
        let Ok(mut conn) = kept.map_or_else(|| Conn::open(endpoint.address), Ok) else {
            ground.recorder.note_unreachable(endpoint.node, ground.us(now()));
            return None;
        };
        let sent = now();
        let result = conn.send(&bytes_of(&ask.lock, &ask.op));
        let result = result.and_then(|()| wait_for_answer(&mut conn, ground, ask, sent));
        if result.is_err() && is_fresh && was_refused(endpoint, &conn) {
            ground.recorder.note_unreachable(endpoint.node, ground.us(now()));
            return None;
        }
        if result.is_ok() {
            self.conns.insert(endpoint.node, conn);
        }
        Some(self.told(ground, ask, sent, result))
    }

    /// Receives the answer to a request that went out on a connection of its own.
    pub(super) fn receive(&self, ground: &Ground, ask: &Ask, conn: &mut Conn, sent: Instant) -> Told {
        let result = wait_for_answer(conn, ground, ask, sent);
        self.told(ground, ask, sent, result)
    }

    fn told(&self, ground: &Ground, ask: &Ask, sent: Instant, result: io::Result<crate::http::Answer>) -> Told {
        let (answer, received) = match result {
            Ok(answer) => (answers::read(&ask.op, &answer), Some(answer.received)),
            Err(error) => (Answer::Unknown { why: lost(ground, ask, &error) }, None),
        };
        self.note(ground, ask, sent, received, answer.clone());
        Told { sent, answer }
    }

    pub(super) fn note(&self, ground: &Ground, ask: &Ask, sent: Instant, received: Option<Instant>, answer: Answer) {
        ground.recorder.note(Call {
            id: ground.recorder.next_id(),
            client: self.client,
            node: ask.at.node,
            lock: ask.lock.clone(),
            op: ask.op.clone(),
            sent_us: ground.us(sent),
            received_us: received.map(|received| ground.us(received)),
            answer,
            excuse: None,
        });
    }
}

/// A client without a proxy learns from its connect that nobody listens; with one it asks the proxy.
pub(super) fn was_refused(endpoint: &Endpoint, conn: &Conn) -> bool {
    let link = endpoint.link.as_ref().zip(conn.local_address());
    link.is_some_and(|(link, from)| link.was_refused(from))
}

fn wait_of(op: &Op) -> Duration {
    match op {
        Op::Acquire { wait_ms, .. } => ms(*wait_ms),
        Op::Release { .. } | Op::Renew { .. } | Op::Get => Duration::ZERO,
    }
}

/// The answer; `TimedOut` when patience is over, `Interrupted` when the run is.
fn wait_for_answer(conn: &mut Conn, ground: &Ground, ask: &Ask, sent: Instant) -> io::Result<crate::http::Answer> {
    let patience = match ask.patience {
        Patience::Full => REQUEST_GRACE + MACHINE_GRACE,
        Patience::Short(patience) => patience,
    };
    let until = sent + wait_of(&ask.op) + patience;
    loop {
        match conn.answer(until.saturating_duration_since(now()).min(LOOK_UP)) {
            Err(error) if error.kind() == ErrorKind::TimedOut && now() < until => {
                if ground.is_over() {
                    return Err(ErrorKind::Interrupted.into());
                }
            }
            result => return result,
        }
    }
}

fn lost(ground: &Ground, ask: &Ask, error: &io::Error) -> Lost {
    let at_us = ground.us(now());
    match (error.kind(), ask.patience) {
        (ErrorKind::Interrupted, _) => Lost::RunEnded,
        (ErrorKind::TimedOut, Patience::Full) => Lost::GaveUp { at_us },
        (ErrorKind::TimedOut, Patience::Short(_)) => Lost::Abandoned { at_us },
        _ => Lost::ConnectionLost { at_us },
    }
}

/// The request of an operation.
pub(super) fn bytes_of(lock: &str, op: &Op) -> Vec<u8> {
    let (path, body) = match op {
        Op::Acquire { ttl_ms, wait_ms, owner, request_id, queued_ms } => {
            let mut body = json!({"name": lock, "ttl_ms": ttl_ms, "wait_ms": wait_ms});
            if let Some(owner) = owner {
                body["owner"] = owner.as_str().into();
            }
            if let Some(request_id) = request_id {
                body["request_id"] = request_id.as_str().into();
                body["queued_ms"] = (*queued_ms).into();
            }
            ("acquire", body)
        }
        Op::Release { token } => ("release", json!({"name": lock, "token": token})),
        Op::Renew { by: Proof::Token(token), ttl_ms } => {
            ("renew", json!({"name": lock, "token": token, "ttl_ms": ttl_ms}))
        }
        Op::Renew { by: Proof::Owner(owner), ttl_ms } => {
            ("renew", json!({"name": lock, "owner": owner, "ttl_ms": ttl_ms}))
        }
        Op::Get => return request("GET", &format!("/v1/locks/get?name={}", encoded(lock)), None),
    };
    post(path, &body)
}

fn post(path: &str, body: &Value) -> Vec<u8> {
    request("POST", &format!("/v1/locks/{path}"), Some(body.to_string().as_bytes()))
}

/// A name as a value of a query, every byte encoded that could mean anything.
fn encoded(name: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(encode).collect()
}
