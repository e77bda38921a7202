//! The hello: who both ends of a connection are.
//!
//! Raft itself does not notice a voter whose directory was emptied or replaced by an older copy, and two leaders in one
//! term may be the result. So identity is checked on every connection, before anything else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lockstead_core::{ClusterId, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use super::{PeerService, lock};

/// The version of what follows the hello.
pub(super) const PROTOCOL: u32 = 1;
/// The most nodes whose starts are remembered; members are few, and strangers must not fill the memory.
const NODES_SEEN_MAX: usize = 4_096;

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
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    Raft,
    Requests,
    Join,
}

/// The first frame of the dialer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) cluster: Option<ClusterId>,
    pub(super) from: NodeCard,
    pub(super) to: Option<(NodeId, Incarnation)>,
    pub(super) purpose: Purpose,
}

/// The first frame of the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HelloAnswer {
    Welcome { cluster: Option<ClusterId>, card: NodeCard },
    Refused { why: RefusedWhy, text: String },
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
    /// The dialer's data directory is an older copy: it has been started more often than the dialer knows.
    OldStart,
    /// Another process runs with the dialer's identity.
    SecondProcess,
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
    fn new(why: RefusedWhy, text: impl Into<String>) -> Self {
        Self { why, text: text.into() }
    }
}

/// The newest start of each node that this process has met. All clones are one memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenStarts(Arc<Mutex<HashMap<(NodeId, Incarnation), Start>>>);

#[derive(Clone, Copy, Debug)]
struct Start {
    starts: u64,
    process: u64,
}

impl SeenStarts {
    /// Remembers a node's start, or refuses it if it is older than the newest known.
    pub(super) fn note(&self, card: NodeCard) -> Result<(), Refusal> {
        let mut seen = lock(&self.0);
        let key = (card.node_id, card.incarnation);
        match seen.get(&key) {
            Some(newest) => check_start(*newest, card)?,
            None if seen.len() >= NODES_SEEN_MAX => return Ok(()),
            None => {}
        }
        seen.insert(key, Start { starts: card.starts, process: card.process });
        Ok(())
    }
}

fn check_start(newest: Start, card: NodeCard) -> Result<(), Refusal> {
    let NodeCard { node_id, starts, process, .. } = card;
    if starts < newest.starts {
        let text =
            format!("node {node_id} is at start {starts}, but start {} has been seen: an older copy", newest.starts);
        return Err(Refusal::new(RefusedWhy::OldStart, text));
    }
    if starts == newest.starts && process != newest.process {
        let text = format!("another process has been node {node_id} at start {starts}");
        return Err(Refusal::new(RefusedWhy::SecondProcess, text));
    }
    Ok(())
}

/// The acceptor's answer; it may make this node adopt the dialer's lineage.
pub(super) fn answer_hello<P: PeerService>(service: &P, seen: &SeenStarts, hello: &Hello) -> HelloAnswer {
    match check_hello(service, seen, hello) {
        Ok(()) => HelloAnswer::Welcome { cluster: service.cluster(), card: service.card() },
        Err(Refusal { why, text }) => HelloAnswer::Refused { why, text },
    }
}

fn check_hello<P: PeerService>(service: &P, seen: &SeenStarts, hello: &Hello) -> Result<(), Refusal> {
    if hello.protocol != PROTOCOL {
        let text = format!("protocol {} instead of {PROTOCOL}", hello.protocol);
        return Err(Refusal::new(RefusedWhy::Protocol, text));
    }
    let card = service.card();
    check_target(card, hello)?;
    check_sender(service, card, hello.from)?;
    let adopted = check_cluster(service.cluster(), hello)?;
    // Whoever asks to join has proved nothing yet: its word must not turn a member away.
    if hello.purpose != Purpose::Join {
        seen.note(hello.from)?;
    }
    match adopted {
        Some(cluster) => service.adopt_cluster(cluster).map_err(|text| Refusal::new(RefusedWhy::Storage, text)),
        None => Ok(()),
    }
}

fn check_target(card: NodeCard, hello: &Hello) -> Result<(), Refusal> {
    let fits = match hello.to {
        Some(to) => to == (card.node_id, card.incarnation),
        None => hello.purpose == Purpose::Join,
    };
    let text = || format!("this is node {} with directory {}", card.node_id, card.incarnation);
    if fits { Ok(()) } else { Err(Refusal::new(RefusedWhy::WrongNode, text())) }
}

fn check_sender<P: PeerService>(service: &P, card: NodeCard, from: NodeCard) -> Result<(), Refusal> {
    let node_id = from.node_id;
    match service.member_incarnation(node_id) {
        Some(incarnation) if incarnation != from.incarnation => {
            let text = format!("node {node_id} is a member with directory {incarnation}, not {}", from.incarnation);
            Err(Refusal::new(RefusedWhy::WrongIncarnation, text))
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
        (Some(_), Some(_), _) | (_, _, Purpose::Join) => Ok(None),
        (_, None, _) => refuse("the dialer belongs to no cluster".to_owned()),
        (None, Some(theirs), Purpose::Raft) => Ok(Some(theirs)),
        (None, Some(_), Purpose::Requests) => refuse("this node has not joined a cluster yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::fakes::{FakeNode, card};
    use crate::peer::frame::append_frame;

    const HOME: ClusterId = ClusterId(7);
    const AWAY: ClusterId = ClusterId(8);

    /// Node 1 of cluster `HOME`, which knows node 2 with directory 2.
    fn host() -> FakeNode {
        FakeNode::new(1, Some(HOME)).with_member(1).with_member(2)
    }

    fn hello(purpose: Purpose) -> Hello {
        Hello { protocol: PROTOCOL, cluster: Some(HOME), from: card(2), to: Some((1, Incarnation(1))), purpose }
    }

    fn check(host: &FakeNode, hello: &Hello, expected: Option<RefusedWhy>) {
        let answer = answer_hello(host, &SeenStarts::default(), hello);
        let refused = match answer {
            HelloAnswer::Welcome { cluster, card } => {
                assert_eq!((cluster, card), (host.cluster(), host.card()));
                None
            }
            HelloAnswer::Refused { why, .. } => Some(why),
        };
        assert_eq!(refused, expected, "{hello:?}");
    }

    #[test]
    fn only_the_right_node_of_the_right_cluster_is_let_in() {
        use Purpose::{Join, Raft, Requests};
        let host = host();
        for purpose in [Raft, Requests, Join] {
            let good = hello(purpose);
            let stranger = NodeCard { incarnation: Incarnation(9), ..card(2) };
            let not_join = |why| (purpose != Join).then_some(why);
            check(&host, &good, None);
            check(&host, &Hello { from: card(3), ..good.clone() }, None);
            check(&host, &Hello { protocol: 2, ..good.clone() }, Some(RefusedWhy::Protocol));
            check(&host, &Hello { to: Some((3, Incarnation(1))), ..good.clone() }, Some(RefusedWhy::WrongNode));
            check(&host, &Hello { to: Some((1, Incarnation(9))), ..good.clone() }, Some(RefusedWhy::WrongNode));
            check(&host, &Hello { to: None, ..good.clone() }, not_join(RefusedWhy::WrongNode));
            check(&host, &Hello { cluster: Some(AWAY), ..good.clone() }, Some(RefusedWhy::WrongCluster));
            check(&host, &Hello { cluster: None, ..good.clone() }, not_join(RefusedWhy::WrongCluster));
            check(&host, &Hello { from: stranger, ..good.clone() }, Some(RefusedWhy::WrongIncarnation));
            let double = NodeCard { process: 99, ..card(1) };
            check(&host, &Hello { from: double, ..good.clone() }, Some(RefusedWhy::SecondProcess));
            check(&host, &Hello { from: card(1), ..good.clone() }, Some(RefusedWhy::Itself));
        }
    }

    #[test]
    fn a_node_without_a_cluster_adopts_that_of_a_raft_dialer_only() {
        let adopted = |purpose, cluster, expected| {
            let host = FakeNode::new(1, None);
            check(&host, &Hello { cluster, ..hello(purpose) }, expected);
            host.cluster()
        };
        assert_eq!(adopted(Purpose::Raft, Some(HOME), None), Some(HOME));
        assert_eq!(adopted(Purpose::Raft, None, Some(RefusedWhy::WrongCluster)), None);
        assert_eq!(adopted(Purpose::Requests, Some(HOME), Some(RefusedWhy::WrongCluster)), None);
        assert_eq!(adopted(Purpose::Join, Some(HOME), None), None);
        let full = FakeNode::new(1, None).with_full_disk();
        check(&full, &hello(Purpose::Raft), Some(RefusedWhy::Storage));
    }

    #[test]
    fn a_refused_dialer_makes_nobody_adopt_its_cluster() {
        let host = FakeNode::new(1, None);
        check(&host, &Hello { to: Some((1, Incarnation(9))), ..hello(Purpose::Raft) }, Some(RefusedWhy::WrongNode));
        assert_eq!(host.cluster(), None);
    }

    #[test]
    fn an_older_start_and_a_second_process_are_refused() {
        let (host, seen) = (host(), SeenStarts::default());
        let arrive = |starts, process| {
            let from = NodeCard { starts, process, ..card(2) };
            match answer_hello(&host, &seen, &Hello { from, ..hello(Purpose::Raft) }) {
                HelloAnswer::Welcome { .. } => None,
                HelloAnswer::Refused { why, .. } => Some(why),
            }
        };
        assert_eq!(arrive(5, 1), None);
        assert_eq!(arrive(5, 1), None);
        assert_eq!(arrive(5, 2), Some(RefusedWhy::SecondProcess));
        assert_eq!(arrive(4, 1), Some(RefusedWhy::OldStart));
        assert_eq!(arrive(6, 2), None);
        assert_eq!(arrive(5, 1), Some(RefusedWhy::OldStart));
    }

    #[test]
    fn the_memory_of_starts_is_bounded_and_keeps_what_it_has() {
        let seen = SeenStarts::default();
        for node_id in 0..=NODES_SEEN_MAX as u64 {
            seen.note(NodeCard { node_id, ..card(1) }).unwrap();
        }
        assert_eq!(lock(&seen.0).len(), NODES_SEEN_MAX);
        let older = NodeCard { node_id: 0, starts: 0, ..card(1) };
        assert_eq!(seen.note(older).unwrap_err().why, RefusedWhy::OldStart);
    }

    #[test]
    fn the_hello_has_these_bytes() {
        let mut bytes = Vec::new();
        append_frame(&mut bytes, &hello(Purpose::Requests)).unwrap();
        assert_eq!(bytes[..5], [/* length */ 0, 0, 0, 12, /* version */ 1]);
        let from = [2, 2, 1, 2];
        let to = [1, 1, 1];
        let expected = [&[/* protocol */ 1, /* cluster */ 1, 7][..], &from, &to, &[/* purpose */ 1]].concat();
        assert_eq!(bytes[5..], expected);
    }
}
