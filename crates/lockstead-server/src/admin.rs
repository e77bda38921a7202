//! What operators ask.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use lockstead_api::{ClusterAnswer, MemberBody, MemberRole, SnapshotBody, TailBody};
use lockstead_raft::{ClusterView, MemberView, Role, SnapshotView};

use crate::answer;
use crate::body::refuse_query;
use crate::members::with_etag;
use crate::node::Node;
use crate::service::Shared;

/// `GET /v1/admin/cluster`: answered by an empty node too.
pub(crate) async fn cluster<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    match refuse_query(request.uri()) {
        Ok(()) => {
            let view = shared.node.view();
            let membership = view.membership;
            with_etag(answer::ok(&cluster_answer(view)), membership)
        }
        Err(refused) => answer::error(&refused),
    }
}

fn cluster_answer(view: ClusterView) -> ClusterAnswer {
    ClusterAnswer {
        cluster_id: view.cluster_id.map(|id| id.to_string()),
        node_id: view.node_id,
        peer: view.peer,
        bootstrapping: view.bootstrapping,
        leader: view.leader,
        term: view.term,
        last_log: view.last_log,
        committed: view.committed,
        applied: view.applied,
        lease_ms: view.lease_ms,
        failures_tolerated: view.failures_tolerated,
        snapshot: view.snapshot.map(snapshot_body),
        tail: TailBody { entries: view.tail_entries, bytes: view.tail_bytes },
        live_records: view.live_records,
        hold_off_ms: view.hold_off_ms,
        disk_bytes: view.disk_bytes,
        membership: view.membership.map(|membership| membership.to_string()),
        members: view.members.into_iter().map(member_body).collect(),
    }
}

fn snapshot_body(SnapshotView { index, built_at, bytes }: SnapshotView) -> SnapshotBody {
    SnapshotBody { index, built_at, bytes }
}

fn member_body(member: MemberView) -> MemberBody {
    MemberBody {
        id: member.id,
        role: match member.role {
            Role::Leader => MemberRole::Leader,
            Role::Follower => MemberRole::Follower,
            Role::Learner => MemberRole::Learner,
        },
        api: member.api,
        peer: member.peer,
        incarnation: member.incarnation.to_string(),
        version: member.version,
        starts: member.starts,
        reachable: member.reachable,
        last_contact_ms: member.last_contact_ms,
        matched: member.matched,
        lag: member.lag,
    }
}
