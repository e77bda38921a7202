//! Which start of a node is the newest, and what its disk is known to hold.
//!
//! A data directory that was copied, or put back from a copy, has forgotten votes and entries that its node has
//! acknowledged. Two things give it away: its number of starts, and where its log ends.
//!
//! Invariants:
//! 1. Of one directory, one process is current: the one with the highest start that was accepted.
//! 2. A process that is overtaken gets its connections cut, and nothing that it says counts any more.
//! 3. No process is accepted whose disk held less, as it started, than an earlier one has acknowledged here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use lockstead_core::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::hello::{NodeCard, Refusal, RefusedWhy};
use super::lock;
use crate::types::{LogId, Member, Vote};

/// The most nodes whose starts are remembered; members are few, and strangers must not fill the memory.
const NODES_SEEN_MAX: usize = 4_096;

/// How far a disk has come: it grows with each vote and, within a term, with each entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Position {
    term: u64,
    /// Term and index of the last entry.
    last_log: Option<(u64, u64)>,
}

impl Position {
    /// With this vote, and a log that ends here.
    pub(crate) fn new(vote: Option<&Vote>, last_log: Option<&LogId>) -> Self {
        let last_log = last_log.map(|log_id| (log_id.committed_leader_id().term, log_id.index()));
        Self { term: vote.map_or(0, |vote| vote.leader_id.term), last_log }
    }
}

/// The newest start of each node that this process has met. All clones are one memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenStarts(Arc<Mutex<HashMap<(NodeId, Incarnation), Seen>>>);

#[derive(Debug)]
struct Seen {
    starts: u64,
    process: u64,
    /// Outlives a process: it is the directory's.
    acknowledged: Arc<Mutex<Position>>,
    overtaken: CancellationToken,
}

/// An accepted process of another node, as each connection to it knows it.
#[derive(Clone, Debug)]
pub(crate) struct Acquaintance {
    acknowledged: Arc<Mutex<Position>>,
    overtaken: CancellationToken,
}

impl Acquaintance {
    /// Cancelled once a later start of the same directory is accepted.
    pub(super) fn overtaken(&self) -> &CancellationToken {
        &self.overtaken
    }

    /// Remembers what the node has acknowledged.
    pub(super) fn acknowledged(&self, position: Position) {
        let mut known = lock(&self.acknowledged);
        *known = position.max(*known);
    }
}

/// What is known of a process that may be let in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// It is the current one, or the first that is met.
    Current,
    /// It would overtake this process, which must not run any more.
    Overtakes {
        /// The earlier process.
        process: u64,
    },
}

impl SeenStarts {
    /// Judges a process by its start and by its disk; `recorded` is what the membership says of its node.
    pub(super) fn judge(&self, card: NodeCard, recorded: Option<&Member>) -> Result<Judged, Refusal> {
        let recorded = recorded.filter(|member| member.incarnation == card.incarnation);
        let recorded = recorded.map(|member| (member.starts, member.process));
        let met = lock(&self.0).get(&card.key()).map(|seen| (seen.starts, seen.process, *lock(&seen.acknowledged)));
        if let Some((.., acknowledged)) = met {
            check_disk(acknowledged, met, card)?;
        }
        let newest = met.map(|(starts, process, _)| (starts, process)).max(recorded);
        let Some((starts, process)) = newest else { return Ok(Judged::Current) };
        check_start(starts, process, card)?;
        Ok(if process == card.process { Judged::Current } else { Judged::Overtakes { process } })
    }

    /// Makes a process the current one of its node, and cuts off an earlier one.
    pub(super) fn accept(&self, card: NodeCard) -> Result<Acquaintance, Refusal> {
        let mut seen = lock(&self.0);
        let room = seen.len() < NODES_SEEN_MAX;
        match seen.entry(card.key()) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                check_start(known.starts, known.process, card)?;
                if known.process != card.process {
                    known.overtaken.cancel();
                    known.overtaken = CancellationToken::new();
                }
                (known.starts, known.process) = (card.starts, card.process);
                Ok(known.acquaintance())
            }
            Entry::Vacant(free) => {
                let fresh = Seen {
                    starts: card.starts,
                    process: card.process,
                    acknowledged: Arc::default(),
                    overtaken: CancellationToken::new(),
                };
                let acquaintance = fresh.acquaintance();
                if room {
                    free.insert(fresh);
                }
                Ok(acquaintance)
            }
        }
    }
}

impl Seen {
    fn acquaintance(&self) -> Acquaintance {
        Acquaintance { acknowledged: Arc::clone(&self.acknowledged), overtaken: self.overtaken.clone() }
    }
}

/// A process that has been met has grown since it started; any other must have started with all that was acknowledged.
fn check_disk(acknowledged: Position, met: Option<(u64, u64, Position)>, card: NodeCard) -> Result<(), Refusal> {
    let is_met = met.is_some_and(|(_, process, _)| process == card.process);
    if is_met || card.opened >= acknowledged {
        return Ok(());
    }
    let text = format!(
        "node {} lacks what it has acknowledged before: its data directory is an older copy, or lost what was synced",
        card.node_id
    );
    Err(Refusal::new(RefusedWhy::OldStart, text))
}

fn check_start(newest: u64, process: u64, card: NodeCard) -> Result<(), Refusal> {
    let NodeCard { node_id, starts, .. } = card;
    if starts < newest {
        let text = format!("node {node_id} is at start {starts}, but start {newest} has been seen: an older copy");
        return Err(Refusal::new(RefusedWhy::OldStart, text));
    }
    if starts == newest && process != card.process {
        let text = format!("another process has been node {node_id} at start {starts}: one of the two runs on a copy");
        return Err(Refusal::new(RefusedWhy::SecondProcess, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::fakes::card;

    fn process(starts: u64, process: u64) -> NodeCard {
        NodeCard { starts, process, ..card(2) }
    }

    fn at(term: u64, index: u64) -> Position {
        Position { term, last_log: Some((term, index)) }
    }

    fn refused<T: std::fmt::Debug>(judged: Result<T, Refusal>) -> RefusedWhy {
        judged.unwrap_err().why
    }

    #[test]
    fn an_older_start_and_a_second_process_are_refused() {
        let seen = SeenStarts::default();
        assert_eq!(seen.judge(process(5, 1), None), Ok(Judged::Current));
        seen.accept(process(5, 1)).unwrap();
        assert_eq!(seen.judge(process(5, 1), None), Ok(Judged::Current));
        assert_eq!(refused(seen.judge(process(5, 2), None)), RefusedWhy::SecondProcess);
        assert_eq!(refused(seen.judge(process(4, 1), None)), RefusedWhy::OldStart);
        assert_eq!(seen.judge(process(6, 2), None), Ok(Judged::Overtakes { process: 1 }));
        seen.accept(process(6, 2)).unwrap();
        assert_eq!(refused(seen.accept(process(5, 1))), RefusedWhy::OldStart);
    }

    #[test]
    fn what_the_membership_records_counts_like_what_was_met() {
        let seen = SeenStarts::default();
        let recorded = Member { incarnation: card(2).incarnation, starts: 5, process: 1, ..Member::default() };
        assert_eq!(seen.judge(process(5, 1), Some(&recorded)), Ok(Judged::Current));
        assert_eq!(refused(seen.judge(process(5, 2), Some(&recorded))), RefusedWhy::SecondProcess);
        assert_eq!(refused(seen.judge(process(4, 2), Some(&recorded))), RefusedWhy::OldStart);
        assert_eq!(seen.judge(process(6, 2), Some(&recorded)), Ok(Judged::Overtakes { process: 1 }));
        let another = Member { incarnation: Incarnation(99), ..recorded };
        assert_eq!(seen.judge(process(1, 2), Some(&another)), Ok(Judged::Current), "another directory's record");
    }

    #[test]
    fn a_process_that_is_overtaken_hears_of_it_and_no_other() {
        let seen = SeenStarts::default();
        let first = seen.accept(process(5, 1)).unwrap();
        let again = seen.accept(process(5, 1)).unwrap();
        assert!(!first.overtaken().is_cancelled());
        let second = seen.accept(process(6, 2)).unwrap();
        assert!(first.overtaken().is_cancelled() && again.overtaken().is_cancelled());
        assert!(!second.overtaken().is_cancelled());
    }

    #[test]
    fn a_start_on_less_than_was_acknowledged_is_refused_however_high_its_number() {
        let seen = SeenStarts::default();
        let first = seen.accept(process(5, 1)).unwrap();
        first.acknowledged(at(3, 10));
        first.acknowledged(at(3, 8));
        assert_eq!(seen.judge(process(5, 1), None), Ok(Judged::Current), "what it held as it started says nothing");
        let copy = |opened| seen.judge(NodeCard { opened, ..process(6, 2) }, None);
        assert_eq!(refused(copy(at(3, 9))), RefusedWhy::OldStart);
        assert_eq!(refused(copy(at(2, 99))), RefusedWhy::OldStart);
        assert_eq!(copy(at(3, 10)), Ok(Judged::Overtakes { process: 1 }));
        let cut_off_in_a_later_term = Position { term: 4, last_log: Some((3, 7)) };
        assert_eq!(copy(cut_off_in_a_later_term), Ok(Judged::Overtakes { process: 1 }));
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_what_it_has() {
        let seen = SeenStarts::default();
        for node_id in 0..=NODES_SEEN_MAX as u64 {
            seen.accept(NodeCard { node_id, ..card(1) }).unwrap();
        }
        assert_eq!(lock(&seen.0).len(), NODES_SEEN_MAX);
        let older = NodeCard { node_id: 0, starts: 0, ..card(1) };
        assert_eq!(refused(seen.judge(older, None)), RefusedWhy::OldStart);
    }
}
