//! The way of a change to the leader, whoever that is, and back.

use std::io;
use std::pin::pin;
use std::time::Duration;

use lockstead_core::NodeId;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::types::{MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembersAnswer};
use crate::leadership::{Leadership, seen};
use crate::node::Node;
use crate::peer::{MembersCallError, MembersLink};
use crate::platform::Platform;
use crate::view::membership_id;

/// How much longer than its `wait_ms` a request may take.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait before the leader is looked for once more.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A request under way.
struct Journey {
    request: MemberRequest,
    /// When its `wait_ms` are over.
    wait_ends: Instant,
    /// When it is answered at the latest; nobody begins anything for it afterwards.
    ends: Instant,
    /// Who was asked first.
    first_leader: Option<NodeId>,
    /// The newest term in which it was asked for and brought no answer.
    unknown_in: Option<u64>,
    /// A leader handed over for its sake.
    handed_over: bool,
}

impl Journey {
    fn set_out(request: MemberRequest) -> Self {
        let wait_ends = Instant::now() + Duration::from_millis(request.wait_ms);
        let ends = wait_ends + GRACE;
        Self { request, wait_ends, ends, first_leader: None, unknown_in: None, handed_over: false }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// The request with the wait that is left of it.
    fn rest(&self) -> MemberRequest {
        MemberRequest { wait_ms: ms_until(self.wait_ends), ..self.request.clone() }
    }

    fn wants_leader(&self) -> bool {
        matches!(self.request.change, MemberChange::Lead { .. })
    }

    /// Something was done, or may have been.
    fn is_begun(&self) -> bool {
        self.unknown_in.is_some() || self.handed_over
    }

    fn not_in_time(&self) -> MemberError {
        if self.is_begun() { MemberError::OutcomeUnknown } else { MemberError::NoLeader }
    }

    /// What the caller is told of a refusal in `term`; `None` if the next try may tell more.
    ///
    /// A later term than the one that left the request unanswered knows what came of it: what is not in its log then
    /// never will be.
    fn refused(&self, why: MemberRefusal, term: u64) -> Option<MemberError> {
        let settled = self.unknown_in.is_none_or(|unknown_in| unknown_in < term);
        match why {
            MemberRefusal::ChangeInProgress if self.is_begun() => None,
            // It may have been this very request that changed it.
            MemberRefusal::MembershipChanged { .. } if self.unknown_in.is_some() => Some(MemberError::OutcomeUnknown),
            _ if !settled || (self.is_begun() && self.wants_leader()) => Some(MemberError::OutcomeUnknown),
            why => Some(why.into()),
        }
    }

    fn unknown(&mut self, term: u64) {
        self.unknown_in = self.unknown_in.max(Some(term));
    }

    /// Takes an answer of `office`; the caller's own, if it is one.
    fn answered(&mut self, answer: MembersAnswer, office: &Leadership) -> Option<Result<MemberReply, MemberError>> {
        match answer {
            MembersAnswer::Changed(Ok(reply)) => {
                let changed = reply.changed || self.is_begun();
                return Some(Ok(MemberReply { changed, ..reply }));
            }
            MembersAnswer::Changed(Err(MemberError::Refused(why))) => return self.refused(why, office.term).map(Err),
            MembersAnswer::Changed(Err(MemberError::NoLeader)) if !self.is_begun() => {
                return Some(Err(MemberError::NoLeader));
            }
            MembersAnswer::Changed(Err(MemberError::OutcomeUnknown)) => self.unknown(office.term),
            MembersAnswer::HandedOver => self.handed_over = true,
            _ => {}
        }
        None
    }
}

impl<P: Platform> Node<P> {
    /// Has the leader make a change; see [`crate::Replica::change_members`].
    ///
    /// A change that has taken effect is answered with success however often it is asked for, so after a lost answer it
    /// is simply asked for again.
    pub(crate) async fn change_members(&self, request: MemberRequest) -> Result<MemberReply, MemberError> {
        let mut journey = Journey::set_out(request);
        // A future that is ready counts as in time, however late it is: hence the look at the clock before each try.
        while !journey.is_over() {
            let Ok(office) = timeout_at(journey.ends, Leadership::any(&self.raft)).await else { break };
            let started_with = *journey.first_leader.get_or_insert(office.leader);
            if office.leader != started_with && matches!(journey.request.change, MemberChange::Lead { to: None }) {
                return self.moved_on(office.leader);
            }
            match self.ask_office(&office, &journey).await {
                Ok(answer) => match journey.answered(answer, &office) {
                    Some(Ok(reply)) => return self.once_seen(reply, &journey).await,
                    Some(Err(why)) => return Err(why),
                    None => {}
                },
                Err(MembersCallError::Lost(_)) => journey.unknown(office.term),
                Err(MembersCallError::NotSent(_)) => {}
            }
            sleep(ASK_AGAIN).await;
        }
        Err(journey.not_in_time())
    }

    /// Asks a leader, while it is one and there is time.
    async fn ask_office(&self, office: &Leadership, journey: &Journey) -> Result<MembersAnswer, MembersCallError> {
        let over = async {
            tokio::select! {
                () = office.ended(&self.raft) => {}
                () = sleep_until(journey.ends) => {}
            }
        };
        if office.leader == self.identity.node_id() {
            let (service, time_left) = (self.service(), journey.ends.saturating_duration_since(Instant::now()));
            return tokio::select! {
                biased;
                answer = service.change(journey.rest(), time_left) => Ok(answer),
                () = over => Err(lost()),
            };
        }
        let mut over = pin!(over);
        let link = tokio::select! {
            biased;
            link = MembersLink::open(&self.dialer, office.leader, &office.member) => link?,
            () = &mut over => return Ok(MembersAnswer::NotLeader),
        };
        tokio::select! {
            biased;
            answer = link.change(journey.rest(), ms_until(journey.ends)) => answer,
            () = over => Err(lost()),
        }
    }

    /// Whoever asks for any other leader has got one.
    fn moved_on(&self, leader: NodeId) -> Result<MemberReply, MemberError> {
        let membership = membership_id(&self.raft).ok_or(MemberError::OutcomeUnknown)?;
        Ok(MemberReply { membership, changed: true, leader, to_go: None, warning: None })
    }

    /// A change of leader counts once this very node sees it.
    async fn once_seen(&self, reply: MemberReply, journey: &Journey) -> Result<MemberReply, MemberError> {
        if !journey.wants_leader() {
            return Ok(reply);
        }
        let seen = seen(&self.raft, |leader| leader == reply.leader);
        timeout_at(journey.ends, seen).await.map_err(|_| MemberError::OutcomeUnknown)?;
        Ok(reply)
    }
}

fn lost() -> MembersCallError {
    MembersCallError::Lost(io::ErrorKind::TimedOut.into())
}

fn ms_until(moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::MembershipId;
    use crate::types::Member;

    fn set_out(change: MemberChange) -> Journey {
        Journey::set_out(MemberRequest { change, if_match: None, wait_ms: 0, force: None })
    }

    fn office(leader: NodeId, term: u64) -> Leadership {
        Leadership { leader, term, member: Member::default() }
    }

    fn done(changed: bool) -> MembersAnswer {
        let membership = MembershipId { term: 4, index: 9 };
        MembersAnswer::Changed(Ok(MemberReply { membership, changed, leader: 2, to_go: None, warning: None }))
    }

    fn refused(why: MemberRefusal) -> MembersAnswer {
        MembersAnswer::Changed(Err(why.into()))
    }

    fn membership_changed() -> MemberRefusal {
        MemberRefusal::MembershipChanged { now: MembershipId { term: 4, index: 9 } }
    }

    #[test]
    fn a_membership_that_the_lost_try_may_have_changed_is_no_refusal() {
        let mut journey = set_out(MemberChange::Remove { id: 3 });
        let at_once = journey.answered(refused(membership_changed()), &office(1, 3));
        assert_eq!(at_once, Some(Err(membership_changed().into())));
        journey.unknown(3);
        let later = journey.answered(refused(membership_changed()), &office(2, 4));
        assert_eq!(later, Some(Err(MemberError::OutcomeUnknown)));
    }

    #[test]
    fn what_a_later_term_refuses_was_not_done_by_a_lost_try() {
        let mut journey = set_out(MemberChange::Promote { id: 3 });
        journey.unknown(3);
        let why = MemberRefusal::UnknownNode(3);
        let same_term = journey.answered(refused(why.clone()), &office(1, 3));
        assert_eq!(same_term, Some(Err(MemberError::OutcomeUnknown)));
        assert_eq!(journey.answered(refused(why.clone()), &office(2, 4)), Some(Err(why.into())));
    }

    #[test]
    fn a_reply_says_changed_if_this_request_did_it_or_may_have() {
        let changed = |journey: &mut Journey, says| match journey.answered(done(says), &office(2, 4)) {
            Some(Ok(reply)) => reply.changed,
            other => panic!("{other:?}"),
        };
        let mut journey = set_out(MemberChange::Demote { id: 3 });
        journey.first_leader = Some(1);
        assert!(!changed(&mut journey, false), "a leader that was never reached did nothing");
        assert!(changed(&mut journey, true));
        journey.unknown(3);
        assert!(changed(&mut journey, false));
        let mut journey = set_out(MemberChange::Lead { to: Some(2) });
        assert_eq!(journey.answered(MembersAnswer::HandedOver, &office(1, 3)), None);
        assert!(changed(&mut journey, false));
    }
}
