//! Whether this node is still the one that its cluster knows: only then may it vote.
//!
//! A node whose data directory was put back from a copy has forgotten votes, and openraft would let it vote again. So a
//! node that starts asks the other voters first, and goes on asking while it hears of no leader.
//!
//! Invariants:
//! 1. A node neither grants votes nor stands for election until every other voter was asked and one has accepted its
//!    start, nor while one refuses it. A sole voter has nobody to ask.
//! 2. Nor while a voter reaches this node elsewhere: it was moved, and has to be started there.
//! 3. A refusal by one voter makes a node abstain; only more than half of the others make it end: one of them may be
//!    mistaken. A sole voter ends when a member calls that it does not know. And whoever says that this node was
//!    removed has applied that, and what was applied was committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lockstead_core::{ClusterId, Incarnation, NodeId};
use openraft::async_runtime::WatchReceiver as _;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::complaints::Complaints;
use crate::node::{member, stop};
use crate::peer::{Dialer, RefusedWhy, Word};
use crate::replica::StopReason;
use crate::store::StateMachine;
use crate::types::{Member, Raft};

/// How soon the voters are asked again while none has accepted this start.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How soon they are asked again while one refuses this node, or while no leader is heard.
const ASK_AGAIN_LATER: Duration = Duration::from_secs(1);
/// How long a leader that was removed is given to hand over.
const LEADER_LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// What the other voters say of this node. All clones are one.
#[derive(Clone)]
pub(crate) struct Standing(Arc<Shared>);

struct Shared {
    node_id: NodeId,
    /// Where this node is reached.
    own: Member,
    words: Mutex<Words>,
    votes: AtomicBool,
    /// When this node began to listen.
    since: Instant,
    /// When a leader called last.
    heard: Mutex<Option<Instant>>,
    /// A word has come.
    news: Notify,
    /// Of which member a cluster reminds this empty node.
    was_member: OnceLock<String>,
    stop_reason: watch::Sender<Option<StopReason>>,
}

/// The last word of each node.
#[derive(Debug, Default)]
struct Words {
    accepted_by: BTreeSet<NodeId>,
    refused_by: BTreeMap<NodeId, String>,
    /// Those that were asked, answered or not.
    asked: BTreeSet<NodeId>,
    /// It was accepted once; from then on only a refusal counts.
    proven: bool,
    /// Members that reach this node at other addresses than its own, and what they know of it.
    elsewhere: BTreeMap<NodeId, Member>,
    /// What was logged of those that refuse this node for another reason than its identity.
    complaints: Complaints,
}

/// What the words amount to.
#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    /// Nobody has accepted this start yet.
    Unproven,
    /// It may vote.
    Accepted,
    /// At least one voter takes it for another, or an older, node.
    Doubted(String),
    /// Most of them do.
    Refused(String),
}

impl Words {
    fn judge(&self, others: &BTreeSet<NodeId>) -> Judgement {
        let refusals: Vec<_> = self.refused_by.iter().filter(|(id, _)| others.contains(id)).collect();
        if let Some((id, text)) = refusals.first() {
            let said = format!("node {id} says: {text}");
            let are_most = 2 * refusals.len() > others.len();
            return if are_most { Judgement::Refused(said) } else { Judgement::Doubted(said) };
        }
        if let Some((id, known)) = self.elsewhere.iter().find(|(id, _)| others.contains(id)) {
            return Judgement::Doubted(is_elsewhere(*id, known));
        }
        let proven = !others.is_disjoint(&self.accepted_by) && others.is_subset(&self.asked);
        if self.proven || proven || others.is_empty() { Judgement::Accepted } else { Judgement::Unproven }
    }
}

impl Words {
    /// Where most of the others reach this node, if that is not where it is.
    fn elsewhere(&self, others: &BTreeSet<NodeId>) -> Option<&Member> {
        let known: Vec<_> = self.elsewhere.iter().filter(|(id, _)| others.contains(id)).collect();
        known.first().filter(|_| 2 * known.len() > others.len()).map(|(_, known)| *known)
    }
}

impl Standing {
    /// Of the node with this id that is reached where `own` says.
    pub(crate) fn new(node_id: NodeId, own: Member, stop_reason: watch::Sender<Option<StopReason>>) -> Self {
        Self(Arc::new(Shared {
            node_id,
            own,
            words: Mutex::default(),
            votes: AtomicBool::new(false),
            since: Instant::now(),
            heard: Mutex::default(),
            news: Notify::new(),
            was_member: OnceLock::new(),
            stop_reason,
        }))
    }

    /// Whether this node may vote and stand for election, as far as its identity goes.
    pub(crate) fn votes(&self) -> bool {
        self.0.votes.load(Ordering::SeqCst)
    }

    /// Why this node abstains, in a voter's words.
    pub(crate) fn doubt(&self) -> Option<String> {
        let words = self.words();
        let refused = words.refused_by.iter().next().map(|(id, text)| format!("node {id} says: {text}"));
        refused.or_else(|| words.elsewhere.iter().next().map(|(id, known)| is_elsewhere(*id, known)))
    }

    /// A leader has called, and this node follows it.
    pub(crate) fn heard_leader(&self) {
        *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a leader has called within this time.
    pub(crate) fn hears_leader(&self, within: Duration) -> bool {
        self.heard().is_some_and(|heard| heard.elapsed() <= within)
    }

    /// A sole voter makes every membership itself, so it knows all members, unless its directory is an older copy: from
    /// before the cluster grew. It has nobody to ask, and would lead on its own.
    pub(crate) fn is_outgrown(&self, by: NodeId) {
        let why = format!(
            "it takes itself for the only voter, but node {by} is a member, too: its data directory is an older copy"
        );
        stop(&self.0.stop_reason, StopReason::Identity(why));
    }

    /// A node of `cluster` takes this empty node for a member of it that had another directory.
    pub(crate) fn is_called_as_member(&self, cluster: ClusterId, incarnation: Incarnation) {
        let node_id = self.0.node_id;
        self.0.was_member.get_or_init(|| {
            format!(
                "node {node_id} is a member of cluster {cluster} with directory {incarnation}, which is not here: remove it \
                 there, and add this node under an id that was never used"
            )
        });
    }

    /// Why this empty node waits in vain to be added.
    pub(crate) fn was_member(&self) -> Option<&str> {
        self.0.was_member.get().map(String::as_str)
    }

    /// A member says something of this node.
    pub(crate) fn take_word(&self, by: NodeId, word: Word<'_>) {
        match word {
            Word::Welcome(known) => self.welcomed(by, known),
            Word::Refused(RefusedWhy::Removed, text) => {
                stop(&self.0.stop_reason, StopReason::Removed(format!("node {by} says: {text}")));
            }
            Word::Refused(RefusedWhy::WrongIncarnation | RefusedWhy::OldStart | RefusedWhy::SecondProcess, text) => {
                let mut words = self.words();
                words.accepted_by.remove(&by);
                if words.refused_by.insert(by, text.to_owned()).is_none() {
                    tracing::error!(by, text, "this node does not vote: a voter refuses its identity");
                }
            }
            Word::Refused(
                why @ (RefusedWhy::Protocol
                | RefusedWhy::WrongCluster
                | RefusedWhy::WrongNode
                | RefusedWhy::Itself
                | RefusedWhy::Storage),
                text,
            ) => {
                if self.words().complaints.is_news(by, why, Instant::now()) {
                    tracing::warn!(by, ?why, text, "a peer refused this node's connection");
                }
            }
        }
        self.0.news.notify_one();
    }

    fn welcomed(&self, by: NodeId, known: Option<&Member>) {
        let mut words = self.words();
        words.refused_by.remove(&by);
        words.accepted_by.insert(by);
        match known.filter(|known| !known.is_where(&self.0.own)) {
            Some(known) => drop(words.elsewhere.insert(by, known.clone())),
            None => drop(words.elsewhere.remove(&by)),
        }
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.0.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silent_for(&self) -> Duration {
        self.heard().unwrap_or(self.0.since).elapsed()
    }

    fn heard(&self) -> Option<Instant> {
        *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a node's standing: asks, and lets it vote or not.
pub(crate) struct Watchman {
    pub(crate) standing: Standing,
    pub(crate) raft: Raft,
    pub(crate) machine: StateMachine,
    pub(crate) dialer: Dialer,
    /// A follower that hears no leader for so long asks whether it is still a member.
    pub(crate) silence_max: Duration,
}

impl Watchman {
    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut metrics = self.raft.server_metrics();
        let mut ask_at = Instant::now();
        loop {
            self.leave_if_removed().await;
            let mut look_again = ASK_AGAIN_LATER;
            if let Some(others) = self.other_voters() {
                if Instant::now() >= ask_at && self.has_to_ask(&others) {
                    self.ask(&others).await;
                    ask_at = Instant::now() + ASK_AGAIN;
                }
                if self.judge(&others) == Judgement::Unproven {
                    look_again = ASK_AGAIN;
                }
            }
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() { return },
                () = self.standing.0.news.notified() => {}
                () = sleep(look_again) => {}
            }
        }
    }

    /// The voters that this node's own membership names beside itself; `None` before it knows one.
    fn other_voters(&self) -> Option<BTreeMap<NodeId, Member>> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let shared = &self.standing.0;
        let voters = membership.voter_ids().filter(|id| *id != shared.node_id);
        let voters = voters.filter_map(|id| Some((id, membership.get_node(&id)?.clone()))).collect();
        membership.voter_ids().next().map(|_| voters)
    }

    fn has_to_ask(&self, others: &BTreeMap<NodeId, Member>) -> bool {
        let leads = self.raft.server_metrics().borrow_watched().state.is_leader();
        let hears_nobody = !leads && self.standing.silent_for() > self.silence_max;
        hears_nobody || self.is_named_elsewhere() || self.standing.words().judge(&ids(others)) != Judgement::Accepted
    }

    /// This node's own membership may be older than its start: what it says of the addresses is a reason to ask, no
    /// more.
    fn is_named_elsewhere(&self) -> bool {
        let Shared { node_id, own, .. } = &*self.standing.0;
        member(&self.raft, *node_id).is_some_and(|known| !known.is_where(own))
    }

    /// Each answers in its own time; what they say comes to [`Standing::take_word`].
    async fn ask(&self, others: &BTreeMap<NodeId, Member>) {
        let asking = others.iter().map(|(id, member)| self.dialer.ask_for_word(*id, member));
        for ((id, _), asked) in others.iter().zip(futures::future::join_all(asking).await) {
            if let Err(why) = asked {
                tracing::debug!(node = id, %why, "no word of this node's identity");
            }
        }
        self.standing.words().asked.extend(others.keys());
    }

    fn judge(&self, others: &BTreeMap<NodeId, Member>) -> Judgement {
        let judged = {
            let mut words = self.standing.words();
            let judged = words.judge(&ids(others));
            words.proven |= judged == Judgement::Accepted;
            judged
        };
        if let Some(known) = self.standing.words().elsewhere(&ids(others)) {
            let why =
                format!("the cluster reaches this node at {} and {} (peers): start it there", known.api, known.peer);
            stop(&self.standing.0.stop_reason, StopReason::Moved(why));
        }
        if let Judgement::Refused(why) = &judged {
            stop(&self.standing.0.stop_reason, StopReason::Identity(why.clone()));
        }
        let votes = judged == Judgement::Accepted;
        if self.standing.0.votes.swap(votes, Ordering::SeqCst) != votes {
            tracing::debug!(votes, ?judged, "this node's standing");
            self.raft.runtime_config().elect(votes);
        }
        judged
    }

    /// A node that has applied its own removal ends; a leader hands over before that.
    async fn leave_if_removed(&self) {
        let me = self.standing.0.node_id;
        if !self.machine.with(|state| state.table.is_retired(me)) {
            return;
        }
        let mut metrics = self.raft.server_metrics();
        let followed = async { while metrics.borrow_watched().state.is_leader() && metrics.changed().await.is_ok() {} };
        // A leader that nobody follows ends all the same.
        let _too_long = tokio::time::timeout(LEADER_LEAVES_WITHIN, followed).await;
        let why = format!("node {me} has applied its own removal");
        stop(&self.standing.0.stop_reason, StopReason::Removed(why));
    }
}

/// It would be elected, and nobody would find it.
fn is_elsewhere(by: NodeId, known: &Member) -> String {
    format!("node {by} reaches this node at {} and {} (peers): start it there", known.api, known.peer)
}

fn ids(members: &BTreeMap<NodeId, Member>) -> BTreeSet<NodeId> {
    members.keys().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `others` amount to: `+` accepted, `-` refuses, `.` asked in vain, `?` not asked.
    fn check(others: &str, expected: &str) {
        let mut words = Words::default();
        for (id, word) in (2..).zip(others.chars()) {
            if word != '?' {
                words.asked.insert(id);
            }
            match word {
                '+' => drop(words.accepted_by.insert(id)),
                '-' => drop(words.refused_by.insert(id, "an older copy".to_owned())),
                _ => {}
            }
        }
        let voters = (2..).take(others.len()).collect();
        let judged = match words.judge(&voters) {
            Judgement::Unproven => "unproven",
            Judgement::Accepted => "accepted",
            Judgement::Doubted(_) => "doubted",
            Judgement::Refused(_) => "refused",
        };
        assert_eq!(judged, expected, "{others:?}");
    }

    #[test]
    fn a_start_counts_once_all_were_asked_one_accepts_and_none_refuses() {
        check("", "accepted");
        check("?", "unproven");
        check("..", "unproven");
        check("+.", "accepted");
        check("+?", "unproven");
        check("++", "accepted");
    }

    #[test]
    fn one_refusal_silences_a_node_and_only_most_of_the_others_end_it() {
        check("-", "refused");
        check("-+", "doubted");
        check("-.", "doubted");
        check("--", "refused");
        check("--++", "doubted");
        check("---+", "refused");
    }

    #[test]
    fn a_node_that_was_accepted_once_need_not_ask_those_who_come_later() {
        let mut words = Words { proven: true, ..Words::default() };
        assert_eq!(words.judge(&[2, 3].into()), Judgement::Accepted);
        words.refused_by.insert(3, "an older copy".to_owned());
        assert!(matches!(words.judge(&[2, 3].into()), Judgement::Doubted(_)));
    }

    #[test]
    fn the_word_of_a_node_that_is_no_voter_does_not_count() {
        let refused_by = BTreeMap::from([(9, "x".to_owned())]);
        let words = Words { refused_by, accepted_by: [9].into(), asked: [2, 9].into(), ..Words::default() };
        assert_eq!(words.judge(&[2].into()), Judgement::Unproven);
    }
}
