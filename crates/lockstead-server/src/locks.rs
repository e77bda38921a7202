//! Acquire, release, renew, get.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use lockstead_api::{
    Consistency, ErrorBody, ErrorCode, GetAnswer, GetQuery, REQUEST_GRACE_MS, parse_acquire, parse_release, parse_renew,
};
use lockstead_core::{Get, LockKey, Op};

use crate::answer;
use crate::body::read_json;
use crate::node::Node;
use crate::service::Shared;

/// `POST /v1/locks/acquire`
pub(crate) async fn acquire<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    let parsed =
        read_json(&shared.config, request).await.and_then(|body| parse_acquire(&body, shared.config.ttl_ms_max));
    match parsed {
        Ok(acquire) if acquire.wait_ms == 0 => submit(&shared, acquire.lock.clone(), 0, Op::Acquire(acquire)).await,
        Ok(acquire) => match shared.waits.try_acquire() {
            Ok(_room) => submit(&shared, acquire.lock.clone(), acquire.wait_ms, Op::Acquire(acquire)).await,
            Err(_) => answer::error(&answer::overloaded()),
        },
        Err(refused) => answer::error(&refused),
    }
}

/// `POST /v1/locks/release`
pub(crate) async fn release<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    match read_json(&shared.config, request).await.and_then(|body| parse_release(&body)) {
        Ok(release) => submit(&shared, release.lock.clone(), 0, Op::Release(release)).await,
        Err(refused) => answer::error(&refused),
    }
}

/// `POST /v1/locks/renew`
pub(crate) async fn renew<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    let parsed = read_json(&shared.config, request).await.and_then(|body| parse_renew(&body, shared.config.ttl_ms_max));
    match parsed {
        Ok(renew) => submit(&shared, renew.lock.clone(), 0, Op::Renew(renew)).await,
        Err(refused) => answer::error(&refused),
    }
}

/// `GET /v1/locks/get`
pub(crate) async fn get<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    match GetQuery::parse(request.uri().query().unwrap_or_default()) {
        Ok(query) => match query.consistency {
            Consistency::Linearizable => submit(&shared, query.lock(), 0, Op::Get(Get { lock: query.lock() })).await,
            Consistency::Stale => get_stale(&shared.node, &query),
        },
        Err(refused) => answer::error(&refused),
    }
}

/// Nothing may be awaited between the node's answer and the response (invariant 1).
async fn submit<N: Node>(shared: &Shared<N>, lock: LockKey, wait_ms: u64, op: Op) -> Response {
    let time_left = Duration::from_millis(wait_ms + REQUEST_GRACE_MS);
    answer::submitted(lock.name(), shared.node.submit(op, time_left).await)
}

fn get_stale<N: Node>(node: &N, query: &GetQuery) -> Response {
    match node.read_stale(&query.lock()) {
        Ok(Some(view)) => answer::ok(&GetAnswer::stale(query.name.as_str(), &view)),
        Ok(None) => answer::error(&ErrorBody::new(ErrorCode::NotHeld, "nobody holds the lock, as this node knows")),
        Err(reason) => answer::error(&answer::unavailable(reason)),
    }
}
