//! From outcomes and errors to HTTP: the only place that does so.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use lockstead_api::{AcquireAnswer, ErrorBody, ErrorCode, GetAnswer, ReleaseAnswer, RenewAnswer};
use lockstead_core::Outcome;
use lockstead_raft::{Reply, SubmitError};
use serde::Serialize;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The answer to a request about the lock `name` that was submitted.
pub(crate) fn submitted(name: &str, result: Result<Reply, SubmitError>) -> Response {
    match result {
        Ok(reply) => decided(name, reply),
        Err(reason) => error(&unavailable(reason)),
    }
}

fn decided(name: &str, Reply { outcome, waited_ms }: Reply) -> Response {
    match outcome {
        // A hold that may be over by now is nothing to be told of as held.
        Outcome::Granted(grant) if grant.left_ms == 0 => error(&unavailable(SubmitError::OutcomeUnknown)),
        Outcome::Renewed(renewal) if renewal.left_ms == 0 => error(&unavailable(SubmitError::OutcomeUnknown)),
        Outcome::Granted(grant) => ok(&AcquireAnswer::new(name, &grant, waited_ms)),
        Outcome::Renewed(renewal) => ok(&RenewAnswer::new(name, &renewal)),
        Outcome::Released => ok(&ReleaseAnswer { name: name.to_owned() }),
        Outcome::Got(view) => ok(&GetAnswer::linearizable(name, &view)),
        Outcome::GaveBack => ok(&serde_json::Map::new()),
        Outcome::Held(held) => error(&ErrorBody::held(&held)),
        Outcome::NotHeld => error(&ErrorBody::new(ErrorCode::NotHeld, "nobody holds the lock")),
        Outcome::NotHolder => error(&not_holder()),
        Outcome::LimitExceeded { limit, current } => error(&ErrorBody::limit_exceeded(limit, current)),
        Outcome::RequestIdReused => error(&request_id_reused()),
        Outcome::TooLarge => error(&ErrorBody::new(ErrorCode::TooLarge, "what would be logged is too large")),
    }
}

fn not_holder() -> ErrorBody {
    ErrorBody::new(ErrorCode::NotHolder, "the token or owner given holds this lock no longer, or never did")
}

fn request_id_reused() -> ErrorBody {
    let message = "this request_id came before with another owner, mode, permits, session or set of names";
    let mut body = ErrorBody::new(ErrorCode::RequestIdReused, message);
    body.error.field = Some("request_id".to_owned());
    body
}

/// The error of a request whose outcome was not found out.
pub(crate) fn unavailable(reason: SubmitError) -> ErrorBody {
    let (code, retry_after_ms) = match reason {
        SubmitError::NoLeader => (ErrorCode::NoLeader, 500),
        SubmitError::OutcomeUnknown => (ErrorCode::OutcomeUnknown, 500),
        SubmitError::CatchingUp => (ErrorCode::CatchingUp, 1_000),
    };
    ErrorBody::new(code, reason.to_string()).retry_after_ms(retry_after_ms)
}

/// The error of a wait for which there is no room. Nothing was changed.
pub(crate) fn overloaded() -> ErrorBody {
    let message =
        "as many requests wait at this node as it has room for; ask another node, or later, or with wait_ms 0";
    ErrorBody::new(ErrorCode::Overloaded, message).retry_after_ms(1_000)
}

/// 200 with a body.
pub(crate) fn ok(answer: &impl Serialize) -> Response {
    json(StatusCode::OK, answer)
}

/// An error, with the status of its code.
pub(crate) fn error(body: &ErrorBody) -> Response {
    let status = StatusCode::from_u16(body.error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, body);
    if let Some(retry_after_ms) = body.error.retry_after_ms {
        let seconds = HeaderValue::from(retry_after_ms.div_ceil(1_000).max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// A body of JSON. The types of the API have text keys only, so that writing them cannot fail.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(256);
    let written = serde_json::to_writer(&mut bytes, body);
    debug_assert!(written.is_ok(), "{written:?}");
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
