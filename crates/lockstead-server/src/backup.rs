//! `GET /v1/admin/backup`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

use crate::answer;
use crate::body::refuse_query;
use crate::node::Node;
use crate::service::Shared;

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// What this node has to give to a backup. It has no need of a leader.
pub(crate) async fn backup<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    if let Err(refused) = refuse_query(request.uri()) {
        return answer::error(&refused);
    }
    match shared.node.back_up() {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            response.headers_mut().insert(CONTENT_TYPE, OCTETS);
            response
        }
        Err(reason) => answer::error(&answer::unavailable(reason)),
    }
}
