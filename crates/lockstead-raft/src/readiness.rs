//! Whether a node is ready, and whom it takes for the leader.

use lockstead_core::NodeId;
use openraft::async_runtime::WatchReceiver as _;

use crate::node::Node;
use crate::platform::Platform;
use crate::replica::NotReady;
use crate::store::Machine;
use crate::term::quorum;
use crate::view::LeaderView;

impl<P: Platform> Node<P> {
    pub(crate) fn readiness(&self) -> Result<(), NotReady> {
        if self.identity.cluster_id().is_none() || !self.knows_members() {
            return Err(NotReady::NotJoined);
        }
        if !self.is_voter() {
            return Err(NotReady::NotVoter);
        }
        if let Some(doubt) = self.standing.doubt() {
            return Err(NotReady::Doubted(doubt));
        }
        if !self.machine.with(Machine::is_complete) {
            return Err(NotReady::CatchingUp);
        }
        // Twice as long as between two questions, and as long again for a busy machine.
        let age_max = self.config.election_max() * 6;
        if self.leader().is_none() || !self.reach.is_proven(age_max) {
            return Err(NotReady::NoLeader);
        }
        if self.standing.votes() { Ok(()) } else { Err(NotReady::Unproven) }
    }

    /// A leader that no quorum answers is none, and so is one that calls no more: a node that is cut off goes on
    /// believing in itself, or in the one that it heard last.
    pub(crate) fn is_followed(&self, leader: NodeId) -> bool {
        let age_max = self.config.election_max() * 2;
        if leader != self.identity.node_id() {
            return self.standing.hears_leader(age_max);
        }
        let (quorum_age, sole_voter) = quorum(&self.raft);
        sole_voter || quorum_age.is_some_and(|age| age <= age_max)
    }

    /// Who leads, as far as this node has heard of it lately.
    pub(crate) fn leader(&self) -> Option<LeaderView> {
        let known = {
            let metrics = self.raft.server_metrics();
            let metrics = metrics.borrow_watched();
            let node_id = metrics.current_leader?;
            let api = metrics.membership_config.membership().get_node(&node_id)?.api.clone();
            LeaderView { node_id, api }
        };
        self.is_followed(known.node_id).then_some(known)
    }
}
