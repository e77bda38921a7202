//! What a kind comes to once it is known who leads.

use std::time::Duration;

use super::kind::Kind;
use super::members::Change;
use super::midway::Midway;
use crate::clock::ms;
use crate::cluster::proxy::Mode;
use crate::dice::Dice;

/// What is done to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    Mode(Mode),
    Delay(Duration),
    /// So many bytes a second.
    Slow(u64),
    /// All that stands is reset, at the begin and at the end.
    Reset,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Kills processes, and starts them at the end.
    Kill(Vec<u64>),
    /// Kills a process and starts it at once.
    Restart(u64),
    /// Stops processes, and lets them go on at the end.
    Freeze(Vec<u64>),
    /// Asks a process to end, and starts it at the end.
    Terminate(u64),
    /// Disturbs links by which one node calls another.
    Peers(Vec<(u64, u64, Disturbance)>),
    /// Disturbs the clients' link to a node.
    Client(u64, Disturbance),
    /// Has the members changed.
    Members(Change),
}

impl Action {
    pub(super) fn processes(&self) -> Vec<u64> {
        match self {
            Self::Kill(ids) | Self::Freeze(ids) => ids.clone(),
            Self::Restart(id) | Self::Terminate(id) => vec![*id],
            Self::Peers(_) | Self::Client(..) | Self::Members(_) => Vec::new(),
        }
    }

    pub(super) fn client_links(&self) -> Vec<u64> {
        match self {
            Self::Client(id, _) => vec![*id],
            _ => Vec::new(),
        }
    }

    /// How it disturbs links, in one of its ways: all are ended alike.
    pub(super) fn disturbance(&self) -> Option<Disturbance> {
        match self {
            Self::Peers(links) => links.first().map(|(_, _, how)| *how),
            Self::Client(_, how) => Some(*how),
            _ => None,
        }
    }
}

/// What a kind is in this cluster, with this leader (the first node if nobody leads), and whom it hits, for people.
pub(super) fn action(kind: Kind, seed: u64, leader: Option<u64>, ids: &[u64]) -> (Action, String) {
    let mut dice = Dice::new(seed, 3);
    let leader = leader.unwrap_or_else(|| ids.first().copied().unwrap_or(1));
    let mut followers = but(leader, ids);
    dice.shuffle(&mut followers);
    // A cluster of one has no followers: what is meant for one hits the only node.
    let follower = followers.first().copied().unwrap_or(leader);
    let anybody = *dice.pick(ids);
    let too_many = followers.iter().copied().take(ids.len() / 2 + ids.len() % 2).collect::<Vec<u64>>();
    let cut = Disturbance::Mode(Mode::Cut);
    match kind {
        Kind::KillLeader => (Action::Kill(vec![leader]), node(leader)),
        Kind::KillFollower => (Action::Kill(vec![follower]), node(follower)),
        Kind::KillAll => (Action::Kill(ids.to_vec()), "all nodes".to_owned()),
        Kind::RestartLeaderFast => (Action::Restart(leader), node(leader)),
        Kind::Terminate => {
            let id = if dice.chance(60) { leader } else { follower };
            (Action::Terminate(id), node(id))
        }
        Kind::StopLeader => (Action::Freeze(vec![leader]), node(leader)),
        Kind::StopFollower => (Action::Freeze(vec![follower]), node(follower)),
        Kind::LoseQuorum if dice.chance(50) => {
            let target = format!("nodes {too_many:?} stopped");
            (Action::Freeze(too_many), target)
        }
        Kind::LoseQuorum => (Action::Peers(among(ids, cut)), "all peer links cut".to_owned()),
        Kind::Hiccup => (Action::Peers(among(ids, Disturbance::Mode(Mode::Stall))), "all peer links".to_owned()),
        Kind::CutLeader => (Action::Peers(around(leader, &followers, cut)), node(leader)),
        Kind::CutFollower => (Action::Peers(around(follower, &but(follower, ids), cut)), node(follower)),
        Kind::CutOneWay => cut_one_way(&mut dice, leader, &followers),
        Kind::CutPair => {
            let pair = if dice.chance(80) { [leader, follower] } else { two(&followers, leader) };
            (Action::Peers(among(&pair, cut)), format!("nodes {pair:?}"))
        }
        Kind::Drop => {
            let links = around(anybody, &but(anybody, ids), Disturbance::Mode(Mode::Stall));
            (Action::Peers(links), node(anybody))
        }
        Kind::Delay => {
            let delay = ms(dice.between(&(2..=60)));
            (Action::Peers(among(ids, Disturbance::Delay(delay))), format!("all peer links, {delay:?}"))
        }
        Kind::Slow => {
            let bytes_per_s = dice.between(&(4_000..=40_000));
            let slow = if dice.chance(60) { leader } else { follower };
            let links = around(slow, &but(slow, ids), Disturbance::Slow(bytes_per_s));
            (Action::Peers(links), format!("{}, {bytes_per_s} bytes/s", node(slow)))
        }
        Kind::ClientCut => (Action::Client(anybody, cut), node(anybody)),
        Kind::ClientReset => (Action::Client(anybody, Disturbance::Reset), node(anybody)),
        Kind::AddNode => (Action::Members(Change::Add), "a new node".to_owned()),
        Kind::RemoveNode | Kind::ReplaceWiped => {
            let gone = if dice.chance(40) { leader } else { follower };
            let change = if kind == Kind::RemoveNode { Change::Remove(gone) } else { Change::Replace(gone) };
            (Action::Members(change), node(gone))
        }
        Kind::Transfer => {
            let to = dice.chance(60).then_some(follower);
            (Action::Members(Change::Lead(to)), to.map_or("to any".to_owned(), node))
        }
        Kind::KillMidChange => (Action::Members(Change::Midway(midway(&mut dice, leader, follower))), node(leader)),
    }
}

/// A leader that hears nobody, or one that nobody hears.
fn cut_one_way(dice: &mut Dice, leader: u64, followers: &[u64]) -> (Action, String) {
    let (out, back, how) = if dice.chance(50) {
        (Mode::StallAnswers, Mode::StallRequests, "hears nothing")
    } else {
        (Mode::StallRequests, Mode::StallAnswers, "is not heard")
    };
    let links = followers
        .iter()
        .flat_map(|other| [(leader, *other, Disturbance::Mode(out)), (*other, leader, Disturbance::Mode(back))]);
    (Action::Peers(links.collect()), format!("{} {how}", node(leader)))
}

/// In which change the leader dies: more often in one that takes two steps.
fn midway(dice: &mut Dice, leader: u64, follower: u64) -> Midway {
    let gone = if dice.chance(30) { leader } else { follower };
    let two_steps = dice.chance(70);
    let changes =
        if two_steps { [Midway::Promote, Midway::Remove(gone)] } else { [Midway::Add, Midway::Lead(follower)] };
    *dice.pick(&changes)
}

fn node(id: u64) -> String {
    format!("node {id}")
}

/// All the others.
fn but(one: u64, ids: &[u64]) -> Vec<u64> {
    ids.iter().copied().filter(|id| *id != one).collect()
}

/// Two followers, or the leader and the only one.
fn two(followers: &[u64], leader: u64) -> [u64; 2] {
    match followers {
        [first, second, ..] => [*first, *second],
        [only] => [leader, *only],
        [] => [leader, leader],
    }
}

/// All links between these nodes, both ways of calling.
fn among(ids: &[u64], how: Disturbance) -> Vec<(u64, u64, Disturbance)> {
    let pairs = ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to)));
    pairs.filter(|(from, to)| from != to).map(|(from, to)| (from, to, how)).collect()
}

/// All links between a node and others, both ways of calling.
fn around(id: u64, others: &[u64], how: Disturbance) -> Vec<(u64, u64, Disturbance)> {
    others.iter().flat_map(|other| [(id, *other, how), (*other, id, how)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: Disturbance = Disturbance::Mode(Mode::Cut);

    #[test]
    fn the_leader_is_meant_where_the_kind_says_so_and_never_where_it_says_follower() {
        for seed in 0..50 {
            let of = |kind| action(kind, seed, Some(2), &[1, 2, 3]).0;
            assert_eq!(of(Kind::KillLeader), Action::Kill(vec![2]));
            assert_ne!(of(Kind::KillFollower), Action::Kill(vec![2]));
            assert_ne!(of(Kind::StopFollower), Action::Freeze(vec![2]));
            let Action::Peers(links) = of(Kind::CutLeader) else { panic!("links") };
            assert!(links.len() == 4 && links.iter().all(|(from, to, how)| (*from == 2 || *to == 2) && *how == CUT));
        }
    }

    #[test]
    fn leaders_and_followers_are_removed_and_leadership_never_moves_to_where_it_is() {
        let of = |kind| (0..50).map(move |seed| action(kind, seed, Some(2), &[1, 2, 3]).0);
        for change in [Change::Remove, Change::Replace] {
            let kind = if change(1) == Change::Remove(1) { Kind::RemoveNode } else { Kind::ReplaceWiped };
            assert!((1..=3).all(|id| of(kind).any(|action| action == Action::Members(change(id)))), "{kind}");
        }
        let moves: Vec<Action> = of(Kind::Transfer).collect();
        let to = |to| Action::Members(Change::Lead(to));
        assert!([None, Some(1), Some(3)].into_iter().all(|target| moves.contains(&to(target))));
        assert!(!moves.contains(&to(Some(2))));
    }

    #[test]
    fn a_leader_dies_in_changes_of_every_sort() {
        let of = |seed| action(Kind::KillMidChange, seed, Some(2), &[1, 2, 3]).0;
        let drawn: Vec<Action> = (0..100).map(of).collect();
        let [removed, leading] = [Midway::Remove, Midway::Lead].map(|to| (1..=3).map(to).collect::<Vec<_>>());
        for change in [vec![Midway::Add, Midway::Promote], removed, leading].concat() {
            let is_drawn = drawn.contains(&Action::Members(Change::Midway(change)));
            assert_eq!(is_drawn, change != Midway::Lead(2), "{change:?}");
        }
    }

    #[test]
    fn a_lost_quorum_leaves_no_majority() {
        for ids in [vec![1, 2, 3], vec![1, 2, 3, 4, 5]] {
            for seed in 0..20 {
                match action(Kind::LoseQuorum, seed, Some(1), &ids).0 {
                    Action::Freeze(stopped) => assert!(ids.len() - stopped.len() <= ids.len() / 2, "{stopped:?}"),
                    Action::Peers(links) => assert_eq!(links.len(), ids.len() * (ids.len() - 1)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn one_way_lets_one_direction_of_each_link_stand() {
        for seed in 0..20 {
            let Action::Peers(links) = action(Kind::CutOneWay, seed, Some(3), &[1, 2, 3]).0 else { panic!("links") };
            let out = links.iter().filter(|(from, ..)| *from == 3).map(|(_, _, how)| *how);
            let back = links.iter().filter(|(_, to, _)| *to == 3).map(|(_, _, how)| *how);
            let (out, back): (Vec<_>, Vec<_>) = (out.collect(), back.collect());
            assert!(out.len() == 2 && back.len() == 2 && out[0] == out[1] && back[0] == back[1] && out[0] != back[0]);
        }
    }

    #[test]
    fn a_cluster_of_one_can_be_struck_by_everything() {
        for kind in Kind::all() {
            action(kind, 1, Some(1), &[1]);
            action(kind, 1, None, &[1]);
        }
    }
}
