//! `POST /v1/admin/snapshot`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use lockstead_api::{ErrorBody, ErrorCode, SnapshotAnswer};
use lockstead_raft::{SnapshotError, SnapshotTaken};

use crate::answer;
use crate::body::read_nothing;
use crate::node::Node;
use crate::service::Shared;

/// How long the call may take; what it began goes on, and the next call waits for it.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Has the leader log every held lock once more, takes a snapshot on this node and purges the log behind it.
pub(crate) async fn snapshot<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    match read_nothing(&shared.config, request).await {
        Ok(()) => answered(shared.node.snapshot(TIME_MAX).await),
        Err(refused) => answer::error(&refused),
    }
}

fn answered(result: Result<SnapshotTaken, SnapshotError>) -> Response {
    match result {
        Ok(SnapshotTaken { index, built_at, purged_to, bytes }) => {
            answer::ok(&SnapshotAnswer { index, built_at, purged_to, bytes })
        }
        Err(reason) => {
            let code = match reason {
                SnapshotError::NoLeader => ErrorCode::NoLeader,
                SnapshotError::CatchingUp => ErrorCode::CatchingUp,
                SnapshotError::NotInTime => ErrorCode::OutcomeUnknown,
            };
            answer::error(&ErrorBody::new(code, reason.to_string()).retry_after_ms(1_000))
        }
    }
}
