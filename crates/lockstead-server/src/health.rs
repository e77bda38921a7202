//! What an orchestrator asks.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use lockstead_raft::NotReady;
use serde::Serialize;

use crate::answer;
use crate::node::Node;
use crate::service::Shared;

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// `GET /livez`: the process answers, nothing more.
pub(crate) async fn livez() -> Response {
    answer::ok(&Health { status: "live", reason: None, message: None })
}

/// `GET /readyz`: a voter that votes, caught up, knows a leader; else 503 with the first reason that applies.
pub(crate) async fn readyz<N: Node>(State(shared): State<Arc<Shared<N>>>) -> Response {
    match shared.node.readiness() {
        Ok(()) => answer::ok(&Health { status: "ready", reason: None, message: None }),
        Err(not_ready) => unready(&not_ready),
    }
}

fn unready(not_ready: &NotReady) -> Response {
    let health = Health { status: "not_ready", reason: Some(reason(not_ready)), message: Some(not_ready.to_string()) };
    let mut response = answer::json(StatusCode::SERVICE_UNAVAILABLE, &health);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The reason in one word, as programs read it.
pub(crate) fn reason(not_ready: &NotReady) -> &'static str {
    match not_ready {
        NotReady::NotJoined => "not_joined",
        NotReady::NotVoter => "not_voter",
        NotReady::Doubted(_) => "doubted",
        NotReady::CatchingUp => "catching_up",
        NotReady::NoLeader => "no_leader",
        NotReady::Unproven => "unproven",
    }
}
