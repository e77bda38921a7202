//! What the HTTP interface needs of a node.

use std::future::Future;
use std::time::Duration;

use lockstead_core::{ClusterId, LockKey, LockView, Op};
use lockstead_raft::{
    ClusterView, LeaderView, MemberError, MemberReply, MemberRequest, NotReady, Replica, Reply, SnapshotError,
    SnapshotTaken, SubmitError,
};
use prometheus_client::registry::Registry;

/// A node as the HTTP interface sees it: [`Replica`], or a stand-in in tests. All clones are one node.
pub trait Node: Clone + Send + Sync + 'static {
    /// As [`Replica::submit`]: dropping the future withdraws the request.
    fn submit(&self, op: Op, time_left: Duration) -> impl Future<Output = Result<Reply, SubmitError>> + Send;

    /// As [`Replica::read_stale`].
    ///
    /// # Errors
    /// [`SubmitError::CatchingUp`].
    fn read_stale(&self, lock: &LockKey) -> Result<Option<LockView>, SubmitError>;

    /// As [`Replica::change_members`].
    fn change_members(&self, request: MemberRequest) -> impl Future<Output = Result<MemberReply, MemberError>> + Send;

    /// As [`Replica::snapshot`]: dropping the future leaves what was begun going on.
    fn snapshot(&self, time_max: Duration) -> impl Future<Output = Result<SnapshotTaken, SnapshotError>> + Send;

    /// The bytes of a backup, as of [`Replica::back_up`].
    ///
    /// # Errors
    /// [`SubmitError::CatchingUp`].
    fn back_up(&self) -> Result<Vec<u8>, SubmitError>;

    /// As [`Replica::view`]: never blocks.
    fn view(&self) -> ClusterView;

    /// As [`Replica::readiness`].
    ///
    /// # Errors
    /// [`NotReady`] with the first reason that applies.
    fn readiness(&self) -> Result<(), NotReady>;

    /// As [`Replica::leader`]; asked for every answer.
    fn leader(&self) -> Option<LeaderView>;

    /// As [`Replica::cluster_id`]; asked for every answer.
    fn cluster_id(&self) -> Option<ClusterId>;

    /// As [`Replica::register_metrics`]; called once.
    fn register_metrics(&self, registry: &mut Registry);
}

impl Node for Replica {
    fn submit(&self, op: Op, time_left: Duration) -> impl Future<Output = Result<Reply, SubmitError>> + Send {
        Self::submit(self, op, time_left)
    }

    fn read_stale(&self, lock: &LockKey) -> Result<Option<LockView>, SubmitError> {
        Self::read_stale(self, lock)
    }

    fn change_members(&self, request: MemberRequest) -> impl Future<Output = Result<MemberReply, MemberError>> + Send {
        Self::change_members(self, request)
    }

    fn snapshot(&self, time_max: Duration) -> impl Future<Output = Result<SnapshotTaken, SnapshotError>> + Send {
        Self::snapshot(self, time_max)
    }

    fn back_up(&self) -> Result<Vec<u8>, SubmitError> {
        Self::back_up(self).map(|backup| backup.encode())
    }

    fn view(&self) -> ClusterView {
        Self::view(self)
    }

    fn readiness(&self) -> Result<(), NotReady> {
        Self::readiness(self)
    }

    fn leader(&self) -> Option<LeaderView> {
        Self::leader(self)
    }

    fn cluster_id(&self) -> Option<ClusterId> {
        Self::cluster_id(self)
    }

    fn register_metrics(&self, registry: &mut Registry) {
        Self::register_metrics(self, registry);
    }
}
