//! Traffic between the nodes of a cluster: one port, three purposes.
//!
//! A connection is TCP with length-delimited frames ([`frame`]). It opens with a hello each way ([`hello`],
//! [`starts`]), which checks who both ends are, and then serves one purpose to its end: Raft calls ([`network`],
//! [`server`]), forwarded requests ([`link`], [`wire`], [`requests`]), one call to join ([`join`]), one about the
//! membership ([`members`]) or one to restate ([`restate`]).
//!
//! Invariants:
//! 1. Nothing but the hello is read from or written to a node whose identity was not checked.
//! 2. No vote and no pre-vote is granted while [`server::RaftPort::may_vote`] is false.
//! 3. An answer is only ever matched to the call that it answers: a connection on which a call was given up is closed
//!    (Raft) or matches by number (requests).
//! 4. A fresh grant that reaches nobody is given back by the node that knows so: by the leader before it is handed to
//!    the socket, by the forwarding node after.

mod dial;
mod frame;
mod hello;
mod join;
mod link;
mod members;
mod network;
mod requests;
mod restate;
mod server;
mod starts;
mod wire;

#[cfg(test)]
mod fakes;
#[cfg(test)]
mod golden_tests;

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockstead_core::{ClusterId, GiveBack, Incarnation, NodeId, Op, Outcome};
use serde::{Deserialize, Serialize};

use crate::members::MembersAnswer;
use crate::types::Member;

pub(crate) use dial::{Dialer, Found, Word};
pub(crate) use hello::{Advertised, NodeCard, RefusedWhy};
pub(crate) use join::{JoinAnswer, JoinCall, JoinStep, ask_to_join};
pub(crate) use link::RequestLinks;
pub(crate) use members::{MembersCall, MembersCallError, MembersLink, ask_about_members};
pub(crate) use network::PeerNetworkFactory;
pub(crate) use restate::{RestateAnswer, RestateCall, Restated, ask_to_restate};
pub(crate) use server::{PeerServer, RaftHandle};
pub(crate) use starts::Position;
pub(crate) use wire::LinkError;

/// What a node answers to a request that another passed on to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ForwardAnswer {
    /// It was decided.
    Reply {
        /// What became of it.
        outcome: Outcome,
        /// How long the request lay with the answering node before the decision, in milliseconds.
        waited_ms: u64,
    },
    /// The node does not lead; nothing was changed.
    NotLeader {
        /// Who leads, as it knows.
        leader: Option<NodeId>,
    },
    /// No leader with a quorum in time; nothing was changed.
    NoLeader,
    /// It may or may not have taken effect.
    OutcomeUnknown,
    /// The node has not replayed enough of the log; nothing was changed.
    CatchingUp,
}

/// What the peer port needs of the node behind it.
pub(crate) trait PeerService: Clone + Send + Sync + 'static {
    /// Who this node is.
    fn card(&self) -> NodeCard;

    /// Where it wants to be reached.
    fn advertised(&self) -> Advertised;

    /// The lineage it belongs to; `None` before it has joined one.
    fn cluster(&self) -> Option<ClusterId>;

    /// Makes a lineage its own, durably: a member of it names this very data directory as a member.
    ///
    /// # Errors
    /// Why that is impossible; the connection is refused then.
    fn adopt_cluster(&self, cluster: ClusterId) -> Result<(), String>;

    /// What this node's own membership says of a node; `None` if it is no member.
    fn member(&self, node_id: NodeId) -> Option<Member>;

    /// Whether a node was a member and was removed, as far as this node has applied.
    fn is_retired(&self, node_id: NodeId) -> bool;

    /// A node of this lineage has called that this node's membership does not name. Must not block.
    fn called_by_unknown(&self, node_id: NodeId);

    /// A node of a lineage takes this empty node for one of its members, which had another data directory. Must not
    /// block.
    fn called_as_member(&self, cluster: ClusterId, incarnation: Incarnation);

    /// Whether this very process answers where the membership says that the node is.
    fn answers_as(&self, node_id: NodeId, process: u64) -> impl Future<Output = bool> + Send;

    /// Decides a request here, if this node leads.
    ///
    /// Dropping the future withdraws the request; if its grant was already made but not yet returned by the future, the
    /// drop gives that grant back.
    fn decide_here(&self, op: Op, time_left: Duration) -> impl Future<Output = ForwardAnswer> + Send;

    /// Gives back a grant that reached nobody. Must not block.
    fn give_back(&self, give_back: GiveBack);

    /// Takes a node into the cluster, or makes it a voter.
    fn join(&self, call: JoinCall) -> impl Future<Output = JoinAnswer> + Send;

    /// Answers a member's call about the membership.
    fn members(&self, call: MembersCall) -> impl Future<Output = MembersAnswer> + Send;

    /// Restates every live record, if this node leads.
    fn restate(&self, call: RestateCall) -> impl Future<Output = RestateAnswer> + Send;
}

/// Locks; a poisoned lock is taken as it is, since a panic ends the process anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
