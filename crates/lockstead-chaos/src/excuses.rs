//! Which calls were disturbed by the run itself, so that neither a late answer nor a broken connection is held against
//! the service.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::faults::{Kind, Struck};
use crate::history::{Answer, Call, Excuse, Lost};
use crate::observer::Unreachable;

/// A node that was started again serves after a moment; one that goes on has its connections to sort out.
const AFTERMATH_US: u64 = 1_500_000;

/// A node that was down explains what broke so shortly before that was seen, or after.
const AROUND_US: u64 = 3_000_000;

struct Window {
    node: u64,
    during_us: RangeInclusive<u64>,
    excuse: Excuse,
}

/// Notes the excuses of calls.
pub(crate) fn excuse(calls: &mut [Call], struck: &[Struck]) {
    let windows: Vec<Window> = struck.iter().flat_map(windows_of).collect();
    for call in calls {
        let end_us = ended_us(call);
        let hit = windows.iter().filter(|window| {
            let (begin_us, until_us) = (*window.during_us.start(), *window.during_us.end());
            window.node == call.node && begin_us <= end_us && call.sent_us <= until_us
        });
        // What ends a process weighs most.
        call.excuse = hit.map(|window| window.excuse).min_by_key(|excuse| *excuse as u8);
    }
}

/// On somebody else's cluster, nobody knows what was done to a node that could not be connected to. That excuses broken
/// answers of that node around that time, and nothing else.
pub(crate) fn excuse_the_unreachable(calls: &mut [Call], unreachable: &[Unreachable]) {
    let mut by_node: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for Unreachable { node, at_us } in unreachable {
        by_node.entry(*node).or_default().insert(*at_us);
    }
    for call in calls.iter_mut().filter(|call| call.excuse.is_none() && is_broken(call)) {
        let end_us = ended_us(call);
        let around_us = end_us.saturating_sub(AROUND_US)..=end_us.saturating_add(AROUND_US);
        if by_node.get(&call.node).is_some_and(|seen_us| seen_us.range(around_us).next().is_some()) {
            call.excuse = Some(Excuse::NodeKilled);
        }
    }
}

fn is_broken(call: &Call) -> bool {
    matches!(call.answer, Answer::Unknown { why: Lost::ConnectionLost { .. } | Lost::ServerError { .. } })
}

fn windows_of(struck: &Struck) -> Vec<Window> {
    let until_us = struck.end_us + AFTERMATH_US;
    let by_process = match struck.planned.kind {
        Kind::StopLeader | Kind::StopFollower | Kind::LoseQuorum => Excuse::NodePaused,
        _ => Excuse::NodeKilled,
    };
    let of = |from_us, excuse| move |node: &u64| Window { node: *node, during_us: from_us..=until_us, excuse };
    let from_us = struck.processes_from_us.unwrap_or(struck.begin_us);
    let processes = struck.processes.iter().map(of(from_us, by_process));
    processes.chain(struck.client_links.iter().map(of(struck.begin_us, Excuse::LinkFault))).collect()
}

/// When a client was done with a call.
fn ended_us(call: &Call) -> u64 {
    let lost_us = match call.answer {
        Answer::Unknown {
            why: Lost::ConnectionLost { at_us } | Lost::Abandoned { at_us } | Lost::GaveUp { at_us },
        } => Some(at_us),
        _ => None,
    };
    call.received_us.or(lost_us).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::proxy::Deeds;
    use crate::faults::Planned;
    use crate::history::Op;

    fn struck(kind: Kind, processes: &[u64], client_links: &[u64]) -> Struck {
        Struck {
            planned: Planned { kind, begin_ms: 0, length_ms: 0, seed: 0 },
            target: String::new(),
            processes: processes.to_vec(),
            processes_from_us: None,
            client_links: client_links.to_vec(),
            new_leader: None,
            was_under_way: false,
            begin_us: 10_000_000,
            end_us: 11_000_000,
            hit_leader: true,
            processes_obeyed: true,
            deeds: Deeds::default(),
            trouble: None,
        }
    }

    fn excuse_of(node: u64, sent_us: u64, lost_us: u64, struck: &[Struck]) -> Option<Excuse> {
        let answer = Answer::Unknown { why: Lost::ConnectionLost { at_us: lost_us } };
        let (op, received_us, excuse) = (Op::Get, None, None);
        let mut calls = [Call { id: 1, client: 1, node, lock: "a".into(), op, sent_us, received_us, answer, excuse }];
        super::excuse(&mut calls, struck);
        calls[0].excuse
    }

    #[test]
    fn only_calls_to_the_struck_node_at_the_time_are_excused() {
        let killed = [struck(Kind::KillLeader, &[1], &[])];
        assert_eq!(excuse_of(1, 9_000_000, 10_000_001, &killed), Some(Excuse::NodeKilled));
        assert_eq!(excuse_of(2, 9_000_000, 10_000_001, &killed), None);
        assert_eq!(excuse_of(1, 9_000_000, 9_900_000, &killed), None);
        assert_eq!(excuse_of(1, 13_000_000, 13_100_000, &killed), None);
    }

    #[test]
    fn a_removed_node_has_no_excuse_before_it_is_leaving() {
        let removed = [Struck { processes_from_us: Some(10_500_000), ..struck(Kind::RemoveNode, &[1], &[]) }];
        assert_eq!(excuse_of(1, 10_100_000, 10_200_000, &removed), None);
        assert_eq!(excuse_of(1, 10_100_000, 10_600_000, &removed), Some(Excuse::NodeKilled));
        assert_eq!(excuse_of(2, 10_100_000, 10_600_000, &removed), None);
    }

    #[test]
    fn only_what_broke_at_an_unreachable_node_around_that_time_is_excused_on_a_foreign_cluster() {
        let excused = |node, answer: Answer| {
            let (op, excuse, received_us) = (Op::Get, None, Some(10_000_000));
            let lock = "a".into();
            let mut calls = [Call { id: 1, client: 1, node, lock, op, sent_us: 0, received_us, answer, excuse }];
            excuse_the_unreachable(&mut calls, &[Unreachable { node: 1, at_us: 12_000_000 }]);
            calls[0].excuse
        };
        let unknown = |why| Answer::Unknown { why };
        assert_eq!(excused(1, unknown(Lost::ServerError { status: 502 })), Some(Excuse::NodeKilled));
        assert_eq!(excused(2, unknown(Lost::ServerError { status: 502 })), None);
        assert_eq!(excused(1, Answer::NotHeld), None);
        let lost_us = |at_us| {
            let answer = unknown(Lost::ConnectionLost { at_us });
            let (op, lock) = (Op::Get, "a".into());
            let mut calls =
                [Call { id: 1, client: 1, node: 1, lock, op, sent_us: 0, received_us: None, answer, excuse: None }];
            excuse_the_unreachable(&mut calls, &[Unreachable { node: 1, at_us: 12_000_000 }]);
            calls[0].excuse
        };
        assert_eq!(lost_us(11_900_000), Some(Excuse::NodeKilled));
        assert_eq!([8_900_000, 15_100_000].map(lost_us), [None; 2]);
    }

    #[test]
    fn an_excuse_says_what_was_done() {
        let paused = struck(Kind::StopLeader, &[1], &[]);
        let cut = struck(Kind::ClientCut, &[], &[1]);
        assert_eq!(excuse_of(1, 10_500_000, 10_600_000, &[paused]), Some(Excuse::NodePaused));
        assert_eq!(excuse_of(1, 10_500_000, 10_600_000, std::slice::from_ref(&cut)), Some(Excuse::LinkFault));
        let both = [cut, struck(Kind::KillAll, &[1, 2], &[])];
        assert_eq!(excuse_of(1, 10_500_000, 10_600_000, &both), Some(Excuse::NodeKilled));
        assert_eq!(excuse_of(1, 10_500_000, 10_600_000, &[struck(Kind::CutLeader, &[], &[])]), None);
    }
}
