//! The kinds of faults.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

/// A kind of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The leader is killed, and started again later.
    KillLeader,
    /// A follower is killed, and started again later.
    KillFollower,
    /// All nodes are killed at once, and started again.
    KillAll,
    /// The leader is killed and started again at once, faster than an election.
    RestartLeaderFast,
    /// A node is asked to end, hands over, ends, and is started again.
    Terminate,
    /// The leader is stopped and goes on later.
    StopLeader,
    /// A follower is stopped and goes on later.
    StopFollower,
    /// So many nodes are stopped, or cut off from each other, that there is no quorum for longer than a TTL.
    LoseQuorum,
    /// All peer links stall for about as long as an election takes to begin: what is proposed commits late.
    Hiccup,
    /// Every peer link of the leader is cut.
    CutLeader,
    /// Every peer link of a follower is cut.
    CutFollower,
    /// The leader is not heard any more, or hears nothing any more, while the other way stands.
    CutOneWay,
    /// The links between two nodes are cut; both still reach the others.
    CutPair,
    /// Bytes between one node and its peers vanish; the connections stand.
    Drop,
    /// Every piece on all peer links comes late.
    Delay,
    /// Few bytes a second pass on one node's peer links.
    Slow,
    /// The clients' link to one node is cut.
    ClientCut,
    /// The clients' connections to one node are reset, again and again.
    ClientReset,
    /// A new node is added and given its vote.
    AddNode,
    /// A voter is removed, and its process ends by itself.
    RemoveNode,
    /// A node is killed and its directory lost; it is removed, and a new node under a new id takes its place.
    ReplaceWiped,
    /// Leadership moves to a node that is named, or to any.
    Transfer,
    /// The leader is killed while it adds, promotes or removes a node, or hands over; it is started again later, and
    /// the change is asked for until it is granted.
    KillMidChange,
}

/// What else may go on at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// Processes and quorums: one after the other.
    Main,
    /// Links that get worse: beside those of the main chain, one after the other.
    Beside,
}

/// All that the schedule needs to know about a kind.
#[derive(Clone, Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// Its name on the command line, in histories and in reports.
    pub name: &'static str,
    /// What it may overlap with.
    pub chain: Chain,
    /// How long it lasts.
    pub length_ms: RangeInclusive<u64>,
}

const fn row(kind: Kind, name: &'static str, chain: Chain, length_ms: RangeInclusive<u64>) -> Row {
    Row { kind, name, chain, length_ms }
}

/// Every kind, in the order of [`Kind`]. A new kind is a row here, an arm where it is done, and one where it is judged.
pub static TABLE: [Row; 23] = [
    row(Kind::KillLeader, "kill-leader", Chain::Main, 800..=2_500),
    row(Kind::KillFollower, "kill-follower", Chain::Main, 500..=2_500),
    row(Kind::KillAll, "kill-all", Chain::Main, 0..=800),
    row(Kind::RestartLeaderFast, "restart-leader-fast", Chain::Main, 0..=0),
    row(Kind::Terminate, "terminate", Chain::Main, 1_000..=2_500),
    row(Kind::StopLeader, "stop-leader", Chain::Main, 500..=4_000),
    row(Kind::StopFollower, "stop-follower", Chain::Main, 500..=4_000),
    row(Kind::LoseQuorum, "lose-quorum", Chain::Main, 2_500..=5_000),
    row(Kind::Hiccup, "hiccup", Chain::Main, 150..=700),
    row(Kind::CutLeader, "cut-leader", Chain::Main, 1_500..=4_500),
    row(Kind::CutFollower, "cut-follower", Chain::Main, 800..=3_000),
    row(Kind::CutOneWay, "cut-one-way", Chain::Main, 1_500..=4_000),
    row(Kind::CutPair, "cut-pair", Chain::Main, 1_000..=3_000),
    row(Kind::Drop, "drop", Chain::Main, 1_000..=4_000),
    row(Kind::Delay, "delay", Chain::Beside, 1_000..=4_000),
    row(Kind::Slow, "slow", Chain::Beside, 1_000..=4_000),
    row(Kind::ClientCut, "client-cut", Chain::Beside, 500..=2_500),
    row(Kind::ClientReset, "client-reset", Chain::Beside, 300..=1_000),
    row(Kind::AddNode, "add-node", Chain::Main, 1_500..=2_500),
    row(Kind::RemoveNode, "remove-node", Chain::Main, 1_000..=2_000),
    row(Kind::ReplaceWiped, "replace-wiped", Chain::Main, 2_500..=4_000),
    row(Kind::Transfer, "transfer", Chain::Main, 300..=1_000),
    row(Kind::KillMidChange, "kill-mid-change", Chain::Main, 2_500..=4_000),
];

/// A name that is none of a kind.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no fault is called {name:?}; there are {}", names().join(", "))]
pub struct UnknownKind {
    name: String,
}

/// The names of all kinds.
pub fn names() -> Vec<&'static str> {
    TABLE.iter().map(|row| row.name).collect()
}

impl Kind {
    /// All kinds.
    pub fn all() -> Vec<Self> {
        TABLE.iter().map(|row| row.kind).collect()
    }

    /// Its row of [`TABLE`].
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let row = TABLE.iter().find(|row| row.name == name);
        row.map(|row| row.kind).ok_or_else(|| UnknownKind { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in Kind::all() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("kill-nobody".parse::<Kind>().is_err_and(|error| error.to_string().contains("kill-leader")));
    }

    #[test]
    fn every_kind_has_its_row_where_it_is_looked_for() {
        // The last variant: a kind that is added after it makes this fail until it has a row.
        assert_eq!(TABLE.len(), Kind::KillMidChange as usize + 1);
        assert!(Kind::all().into_iter().all(|kind| kind.row().kind == kind));
    }
}
