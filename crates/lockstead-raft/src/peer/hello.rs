//! The hello: who both ends of a connection are.
//!
//! Raft itself does not notice a voter whose directory was emptied or replaced by an older copy, and two leaders in one
//! term may be the result. So identity is checked on every connection, before anything else.

use lockstead_core::{ClusterId, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use super::PeerService;
use super::starts::{Acquaintance, Judged, Position, SeenStarts};
use crate::types::Member;

/// The version of what follows the hello.
pub(super) const PROTOCOL: u32 = 1;
/// What this build calls itself.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeCard {
    /// Its id.
    pub(crate) node_id: NodeId,
    /// Its data directory.
    pub(crate) incarnation: Incarnation,
    /// How often it was started on that directory.
    pub(crate) starts: u64,
    /// Random, made by the process: tells two live processes with the same directory apart.
    pub(crate) process: u64,
    /// What its disk held as the process started.
    pub(crate) opened: Position,
}

impl NodeCard {
    /// Names the data directory.
    pub(super) fn key(&self) -> (NodeId, Incarnation) {
        (self.node_id, self.incarnation)
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    Raft,
    Requests,
    /// One call of a node that may be no member yet.
    Join,
    /// Who answers there, and where does it want to be reached? Nothing more is asked.
    Probe,
    /// One call about the membership.
    Members,
    /// One call to the leader to restate.
    Restate,
}

/// The first frame of the dialer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) cluster: Option<ClusterId>,
    pub(super) from: NodeCard,
    pub(super) to: Option<(NodeId, Incarnation)>,
    pub(super) purpose: Purpose,
    pub(super) version: String,
}

/// The first frame of the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HelloAnswer {
    Welcome(Welcome),
    Refused { why: RefusedWhy, text: String },
}

/// How a dialer is let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) cluster: Option<ClusterId>,
    pub(super) card: NodeCard,
    /// What the acceptor's membership says of the dialer.
    pub(super) known: Option<Member>,
    pub(super) version: String,
}

/// The frame after a [`Welcome`] to a [`Purpose::Probe`]: where the acceptor wants to be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Advertised {
    /// By peers, `host:port`.
    pub(crate) peer: String,
    /// By clients, `host:port`.
    pub(crate) api: String,
}

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RefusedWhy {
    /// Another version of the protocol.
    Protocol,
    /// The dialer wants another node, or this node with another data directory.
    WrongNode,
    /// The dialer belongs to another lineage, or to none where one is needed; or the acceptor does.
    WrongCluster,
    /// The dialer's id is a member with another data directory.
    WrongIncarnation,
    /// The dialer's data directory is an older copy: it has been started more often, or has acknowledged more, than the
    /// dialer knows.
    OldStart,
    /// Another process runs, or ran, with the dialer's identity.
    SecondProcess,
    /// The dialer was a member and was removed.
    Removed,
    /// The dialer has dialed itself.
    Itself,
    /// The acceptor could not keep what it learned.
    Storage,
}

/// A refusal and its words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) why: RefusedWhy,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(why: RefusedWhy, text: impl Into<String>) -> Self {
        Self { why, text: text.into() }
    }
}

/// The acceptor's answer, and the dialer as it is known from now on. It may make this node adopt the dialer's lineage,
/// and cut off an earlier process of the dialer's node.
pub(super) async fn answer_hello<P: PeerService>(
    service: &P,
    seen: &SeenStarts,
    hello: &Hello,
) -> (HelloAnswer, Option<Acquaintance>) {
    match check_hello(service, seen, hello).await {
        Ok(acquaintance) => {
            let known = service.member(hello.from.node_id);
            let (cluster, card) = (service.cluster(), service.card());
            (HelloAnswer::Welcome(Welcome { cluster, card, known, version: VERSION.to_owned() }), acquaintance)
        }
        Err(Refusal { why, text }) => (HelloAnswer::Refused { why, text }, None),
    }
}

async fn check_hello<P: PeerService>(
    service: &P,
    seen: &SeenStarts,
    hello: &Hello,
) -> Result<Option<Acquaintance>, Refusal> {
    if hello.protocol != PROTOCOL {
        let text = format!("protocol {} (version {}) instead of {PROTOCOL} ({VERSION})", hello.protocol, hello.version);
        return Err(Refusal::new(RefusedWhy::Protocol, text));
    }
    let card = service.card();
    check_target(service, card, hello)?;
    let adopted = check_cluster(service.cluster(), hello)?;
    check_sender(service, card, hello.from)?;
    // Whoever asks to join, or who somebody is, has proved nothing yet: its word must not turn a member away.
    let acquaintance = match hello.purpose {
        Purpose::Join | Purpose::Probe => None,
        Purpose::Raft | Purpose::Requests | Purpose::Members | Purpose::Restate => {
            Some(meet(service, seen, hello.from).await?)
        }
    };
    if let Some(cluster) = adopted {
        service.adopt_cluster(cluster).map_err(|text| Refusal::new(RefusedWhy::Storage, text))?;
    }
    Ok(acquaintance)
}

/// Lets a process in unless its directory is an older copy, or the process before it still runs.
async fn meet<P: PeerService>(service: &P, seen: &SeenStarts, from: NodeCard) -> Result<Acquaintance, Refusal> {
    let recorded = service.member(from.node_id);
    if recorded.is_none() {
        service.called_by_unknown(from.node_id);
    }
    if let Judged::Overtakes { process } = seen.judge(from, recorded.as_ref())?
        && service.answers_as(from.node_id, process).await
    {
        let text = format!("node {} runs already, on the directory that this one was copied from", from.node_id);
        return Err(Refusal::new(RefusedWhy::SecondProcess, text));
    }
    seen.accept(from)
}

fn check_target<P: PeerService>(service: &P, card: NodeCard, hello: &Hello) -> Result<(), Refusal> {
    if let (None, Some(theirs), Some((id, incarnation))) = (service.cluster(), hello.cluster, hello.to)
        && (id, hello.purpose) == (card.node_id, Purpose::Raft)
        && incarnation != card.incarnation
    {
        service.called_as_member(theirs, incarnation);
    }
    let fits = match hello.to {
        Some(to) => to == (card.node_id, card.incarnation),
        None => matches!(hello.purpose, Purpose::Join | Purpose::Probe),
    };
    let text = || format!("this is node {} with directory {}", card.node_id, card.incarnation);
    if fits { Ok(()) } else { Err(Refusal::new(RefusedWhy::WrongNode, text())) }
}

fn check_sender<P: PeerService>(service: &P, card: NodeCard, from: NodeCard) -> Result<(), Refusal> {
    let node_id = from.node_id;
    match service.member(node_id).map(|member| member.incarnation) {
        Some(incarnation) if incarnation != from.incarnation => {
            let text = format!("node {node_id} is a member with directory {incarnation}, not {}", from.incarnation);
            Err(Refusal::new(RefusedWhy::WrongIncarnation, text))
        }
        None if service.is_retired(node_id) => {
            let text = format!("node {node_id} was removed from this cluster; its id is never used again");
            Err(Refusal::new(RefusedWhy::Removed, text))
        }
        _ if from == card => Err(Refusal::new(RefusedWhy::Itself, format!("node {node_id} has dialed itself"))),
        _ if node_id == card.node_id => {
            Err(Refusal::new(RefusedWhy::SecondProcess, format!("this process is node {node_id}")))
        }
        _ => Ok(()),
    }
}

/// The lineage to adopt, if any.
fn check_cluster(mine: Option<ClusterId>, hello: &Hello) -> Result<Option<ClusterId>, Refusal> {
    let refuse = |text: String| Err(Refusal::new(RefusedWhy::WrongCluster, text));
    match (mine, hello.cluster, hello.purpose) {
        (Some(mine), Some(theirs), _) if mine != theirs => {
            refuse(format!("this node belongs to cluster {mine}, not {theirs}"))
        }
        (Some(_), Some(_), _) | (_, _, Purpose::Join | Purpose::Probe) => Ok(None),
        (_, None, _) => refuse("the dialer belongs to no cluster".to_owned()),
        (None, Some(theirs), Purpose::Raft) => Ok(Some(theirs)),
        (None, Some(_), Purpose::Requests | Purpose::Members | Purpose::Restate) => {
            refuse("this node has not joined a cluster yet".to_owned())
        }
    }
}

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;
