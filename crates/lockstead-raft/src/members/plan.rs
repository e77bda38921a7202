//! What a change amounts to, given the membership in force.

use lockstead_core::NodeId;
use openraft::ChangeMembers;

use super::change::{Step, refuse};
use super::quorum::Voters;
use super::types::{MemberChange, MemberRefusal, MemberRequest};
use crate::node::member;
use crate::platform::Platform;
use crate::service::Service;
use crate::types::Member;

/// What openraft is asked for.
pub(super) struct Plan {
    pub(super) change: ChangeMembers<NodeId, Member>,
    /// Voters that are none any more stay learners.
    pub(super) retain: bool,
    /// Who votes afterwards.
    pub(super) voters: Voters,
    /// Who does not count as answering while the change is under way.
    pub(super) away: Option<NodeId>,
    /// It is made although the quorum would be lost.
    pub(super) forced: bool,
}

impl Plan {
    /// The second step of a change: from a joint membership to its latter half.
    pub(super) fn finishing(voters: Voters) -> Self {
        Self { change: ChangeMembers::AddVoterIds([].into()), retain: true, voters, away: None, forced: true }
    }

    /// A member says something new of itself.
    pub(super) fn recording(id: NodeId, member: Member, voters: Voters) -> Self {
        Self { change: ChangeMembers::SetNodes([(id, member)].into()), retain: true, voters, away: None, forced: false }
    }
}

impl<P: Platform> Service<P> {
    /// What has to be done; `None` if it is so already.
    pub(super) fn plan(&self, request: &MemberRequest, newcomer: Option<Member>) -> Step<Option<Plan>> {
        let voters: Voters = self.raft.voter_ids().collect();
        match &request.change {
            MemberChange::Add { id, peer, api } => self.plan_add(*id, (peer, api), newcomer, voters),
            MemberChange::Move { id, peer, api } => self.plan_move(*id, (peer, api), voters),
            MemberChange::Promote { id } => Ok((!voters.contains(id)).then(|| Plan {
                change: ChangeMembers::AddVoterIds([*id].into()),
                retain: true,
                voters: voters.iter().copied().chain([*id]).collect(),
                away: None,
                forced: false,
            })),
            MemberChange::Demote { id } | MemberChange::Remove { id } => self.plan_leave(&request.change, *id, voters),
            MemberChange::Lead { .. } => Ok(None),
        }
    }

    fn plan_add(
        &self,
        id: NodeId,
        addresses: (&String, &String),
        newcomer: Option<Member>,
        voters: Voters,
    ) -> Step<Option<Plan>> {
        self.check_not_retired(id)?;
        self.check_addresses(id, addresses)?;
        match (member(&self.raft, id), newcomer) {
            (Some(known), _) if (&known.peer, &known.api) == addresses => Ok(None),
            (Some(known), _) => {
                let text = format!("node {id} is a member at {} and {} (peers)", known.api, known.peer);
                refuse(MemberRefusal::NodeIdReused(text))
            }
            (None, Some(newcomer)) => {
                let change = ChangeMembers::AddNodes([(id, newcomer)].into());
                Ok(Some(Plan { change, retain: true, voters, away: None, forced: false }))
            }
            // It was a member a moment ago.
            (None, None) => refuse(MemberRefusal::ChangeInProgress),
        }
    }

    /// It may be retired while it is waited for.
    pub(super) fn check_not_retired(&self, id: NodeId) -> Step<()> {
        if self.machine.with(|state| state.table.is_retired(id)) {
            let text = format!("node {id} was removed from this cluster, and its id is never used again");
            return refuse(MemberRefusal::NodeIdReused(text));
        }
        Ok(())
    }

    fn plan_move(&self, id: NodeId, addresses: (&String, &String), voters: Voters) -> Step<Option<Plan>> {
        let Some(known) = member(&self.raft, id) else { return refuse(MemberRefusal::UnknownNode(id)) };
        if (&known.peer, &known.api) == addresses {
            return Ok(None);
        }
        self.check_addresses(id, addresses)?;
        let (peer, api) = (addresses.0.clone(), addresses.1.clone());
        let change = ChangeMembers::SetNodes([(id, Member { peer, api, ..known })].into());
        // It has to be started there, whichever of the two is new.
        Ok(Some(Plan { change, retain: true, voters, away: Some(id), forced: false }))
    }

    fn plan_leave(&self, change: &MemberChange, id: NodeId, mut voters: Voters) -> Step<Option<Plan>> {
        let removed = matches!(change, MemberChange::Remove { .. });
        if member(&self.raft, id).is_none() {
            let was_member = removed && self.machine.with(|state| state.table.is_retired(id));
            return if was_member { Ok(None) } else { refuse(MemberRefusal::UnknownNode(id)) };
        }
        let voted = voters.remove(&id);
        match (voted, removed) {
            (true, _) if voters.is_empty() => {
                refuse(MemberRefusal::WouldLoseQuorum(format!("node {id} is the last voter")))
            }
            (true, _) => {
                let change = ChangeMembers::RemoveVoters([id].into());
                Ok(Some(Plan { change, retain: !removed, voters, away: None, forced: false }))
            }
            (false, true) => {
                let change = ChangeMembers::RemoveNodes([id].into());
                Ok(Some(Plan { change, retain: true, voters, away: None, forced: false }))
            }
            (false, false) => Ok(None),
        }
    }

    /// Two members at one address would get each other's traffic.
    pub(super) fn check_addresses(&self, id: NodeId, (peer, api): (&String, &String)) -> Step<()> {
        match self.who_is_at(id, peer, api) {
            None => Ok(()),
            Some(other) => {
                let text = format!("node {other} is a member with one of the addresses {peer} and {api}");
                refuse(MemberRefusal::AddressInUse(text))
            }
        }
    }
}
