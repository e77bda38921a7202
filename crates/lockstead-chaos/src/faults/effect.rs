//! Whether a fault did anything.

use super::kind::Kind;
use super::strike::Struck;
use crate::history::{Fault, Leaderless};
use crate::observer::Office;

/// A leader that was hit is replaced by then, or it was not hit enough.
const REPLACED_WITHIN_US: u64 = 8_000_000;
/// An office that has begun is seen by then.
const SEEN_WITHIN_US: u64 = 1_000_000;

impl Struck {
    /// Whether it did what its kind says: processes obeyed, bytes were held up, and leaders or quorums really were
    /// lost.
    pub fn took_effect(&self, offices: &[Office], leaderless: &[Leaderless]) -> bool {
        let deeds = self.deeds;
        self.processes_obeyed
            && match self.planned.kind {
                Kind::KillLeader | Kind::StopLeader | Kind::RestartLeaderFast => self.is_followed_by_office(offices),
                // Seen by whoever did it.
                Kind::KillFollower
                | Kind::KillAll
                | Kind::StopFollower
                | Kind::Terminate
                | Kind::AddNode
                | Kind::RemoveNode
                | Kind::ReplaceWiped => true,
                Kind::Transfer => self.is_moved(offices),
                Kind::KillMidChange => self.was_under_way && self.is_followed_by_office(offices),
                Kind::LoseQuorum => self.is_mostly_leaderless(leaderless),
                Kind::CutLeader => deeds.resets > 0 && self.is_followed_by_office(offices),
                Kind::CutFollower | Kind::ClientReset => deeds.resets > 0,
                Kind::CutOneWay | Kind::Drop | Kind::Hiccup => deeds.stalled > 0,
                Kind::Delay | Kind::Slow => deeds.slowed > 0,
                Kind::CutPair | Kind::ClientCut => deeds.resets + deeds.refused > 0,
            }
    }

    fn is_followed_by_office(&self, offices: &[Office]) -> bool {
        let window = self.begin_us..=self.end_us + REPLACED_WITHIN_US;
        self.hit_leader && offices.iter().any(|office| window.contains(&office.seen_us))
    }

    /// Whether whoever was said to lead was seen to.
    fn is_moved(&self, offices: &[Office]) -> bool {
        let window = self.begin_us..=self.end_us + SEEN_WITHIN_US;
        offices.iter().any(|office| window.contains(&office.seen_us) && Some(office.leader) == self.new_leader)
    }

    fn is_mostly_leaderless(&self, leaderless: &[Leaderless]) -> bool {
        let parts = leaderless.iter().map(|gap| {
            let (begin_us, end_us) = (gap.begin_us.max(self.begin_us), gap.end_us.min(self.end_us));
            end_us.saturating_sub(begin_us)
        });
        parts.sum::<u64>() >= (self.end_us - self.begin_us) / 2
    }

    /// The line for the history.
    pub fn record(&self, offices: &[Office], leaderless: &[Leaderless]) -> Fault {
        Fault {
            kind: self.planned.kind.to_string(),
            target: self.target.clone(),
            begin_us: self.begin_us,
            end_us: self.end_us,
            took_effect: self.took_effect(offices, leaderless),
            detail: self.trouble.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::proxy::Deeds;
    use crate::faults::Planned;

    fn struck(kind: Kind) -> Struck {
        Struck {
            planned: Planned { kind, begin_ms: 1, length_ms: 1, seed: 0 },
            target: String::new(),
            processes: Vec::new(),
            processes_from_us: None,
            client_links: Vec::new(),
            new_leader: None,
            was_under_way: false,
            begin_us: 1_000_000,
            end_us: 2_000_000,
            hit_leader: true,
            processes_obeyed: true,
            deeds: Deeds::default(),
            trouble: None,
        }
    }

    fn office(seen_us: u64) -> Vec<Office> {
        vec![Office { seen_us, term: 2, leader: 1 }]
    }

    #[test]
    fn a_leader_was_only_hit_if_another_office_follows() {
        let killed = struck(Kind::KillLeader);
        assert!(killed.took_effect(&office(1_500_000), &[]));
        assert!(!killed.took_effect(&office(900_000), &[]) && !killed.took_effect(&[], &[]));
        assert!(!Struck { hit_leader: false, ..killed.clone() }.took_effect(&office(1_500_000), &[]));
        assert!(!Struck { processes_obeyed: false, ..killed }.took_effect(&office(1_500_000), &[]));
    }

    #[test]
    fn leadership_was_only_moved_if_whoever_was_said_to_lead_was_seen_to() {
        let moved = Struck { new_leader: Some(1), ..struck(Kind::Transfer) };
        assert!(moved.took_effect(&office(1_200_000), &[]));
        assert!(!moved.took_effect(&office(900_000), &[]) && !moved.took_effect(&office(3_500_000), &[]));
        let other = Struck { new_leader: Some(2), ..moved.clone() };
        assert!(!other.took_effect(&office(1_200_000), &[]));
        assert!(!Struck { new_leader: None, ..moved }.took_effect(&office(1_200_000), &[]));
    }

    #[test]
    fn a_leader_only_died_in_a_change_if_that_was_asked_for_and_not_answered() {
        let in_change = Struck { was_under_way: true, ..struck(Kind::KillMidChange) };
        assert!(in_change.took_effect(&office(1_200_000), &[]));
        assert!(!in_change.took_effect(&[], &[]), "somebody else has died");
        assert!(!Struck { was_under_way: false, ..in_change.clone() }.took_effect(&office(1_200_000), &[]));
        let half_made = Struck { processes_obeyed: false, ..in_change };
        assert!(!half_made.took_effect(&office(1_200_000), &[]), "it was never granted");
    }

    #[test]
    fn members_were_only_changed_if_it_went_to_its_end() {
        for kind in [Kind::AddNode, Kind::RemoveNode, Kind::ReplaceWiped] {
            assert!(struck(kind).took_effect(&[], &[]), "{kind}");
            assert!(!Struck { processes_obeyed: false, ..struck(kind) }.took_effect(&[], &[]), "{kind}");
        }
    }

    #[test]
    fn links_were_only_hit_if_they_had_something_to_lose() {
        let with = |kind, deeds| Struck { deeds, ..struck(kind) }.took_effect(&[], &[]);
        let none = Deeds::default();
        for kind in [Kind::CutFollower, Kind::CutPair, Kind::Drop, Kind::Delay, Kind::Slow, Kind::ClientCut] {
            assert!(!with(kind, none), "{kind}");
        }
        assert!(with(Kind::CutPair, Deeds { resets: 1, ..none }) && with(Kind::Drop, Deeds { stalled: 1, ..none }));
        assert!(with(Kind::Slow, Deeds { slowed: 1, ..none }) && with(Kind::ClientCut, Deeds { refused: 1, ..none }));
    }

    #[test]
    fn a_quorum_was_only_lost_if_nobody_led_for_most_of_the_time() {
        let lost = struck(Kind::LoseQuorum);
        let gap = |begin_us, end_us| [Leaderless { begin_us, end_us }];
        assert!(lost.took_effect(&[], &gap(1_200_000, 2_500_000)));
        assert!(!lost.took_effect(&[], &gap(1_800_000, 2_500_000)) && !lost.took_effect(&[], &[]));
    }
}
