//! Looks at the nodes all the while: who leads, and when nobody does.
//!
//! It asks every node directly, past the proxies of clients, by two threads each. One asks for a linearizable read: an
//! answer proves that at some moment between question and answer a leader reached a quorum. So the time without such a
//! leader, between two answers that follow each other, is at most what lies between the *sending* of the earlier one
//! and the *receipt* of the later one. That is what is noted: an upper bound, wherever the moments lay. The other asks
//! each node for its view of the cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::{as_us, ms, now, secs};
use crate::cluster::view::View;
use crate::history::Leaderless;
use crate::http::{Answer, Conn, request};

/// Between two questions of one thread.
const READ_EVERY: Duration = ms(30);
const VIEW_EVERY: Duration = ms(60);
/// A read through a node that finds no leader is answered after 5 s at the latest.
const READ_PATIENCE: Duration = secs(6);
const VIEW_PATIENCE: Duration = ms(500);
/// A view that is older says nothing about now.
const VIEW_FRESH: Duration = ms(700);
/// Shorter gaps are those between two questions, and shorter than any election.
const GAP_US_MIN: u64 = 150_000;
/// A lock that nobody ever holds.
const READ_PATH: &str = "/v1/locks/get?name=nobody-ever-holds-this";
const VIEW_PATH: &str = "/v1/admin/cluster";

/// A change of leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Office {
    /// When it was first seen, in microseconds of the run.
    pub seen_us: u64,
    /// Its term.
    pub term: u64,
    /// Who leads in it.
    pub leader: u64,
}

/// A moment in which a node could not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The node.
    pub node: u64,
    /// When that was seen, in microseconds of the run.
    pub at_us: u64,
}

/// All that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The times without a leader, by their begin and without overlaps.
    pub leaderless: Vec<Leaderless>,
    /// The changes of leader.
    pub offices: Vec<Office>,
    /// When nodes could not be connected to.
    pub unreachable: Vec<Unreachable>,
}

#[derive(Debug, Default)]
struct State {
    last_sent_us: Option<u64>,
    leaderless: Vec<Leaderless>,
    offices: Vec<Office>,
    unreachable: Vec<Unreachable>,
    views: BTreeMap<u64, (Instant, View)>,
}

impl State {
    fn proved(&mut self, sent_us: u64, received_us: u64) {
        if let Some(begin_us) = self.last_sent_us {
            self.note_gap(begin_us, received_us);
        }
        self.last_sent_us = self.last_sent_us.max(Some(sent_us));
    }

    fn note_gap(&mut self, begin_us: u64, end_us: u64) {
        if end_us.saturating_sub(begin_us) >= GAP_US_MIN {
            self.leaderless.push(Leaderless { begin_us, end_us });
        }
    }

    fn viewed(&mut self, seen_us: u64, view: View) {
        let is_new = self.offices.last().is_none_or(|last| last.term < view.term);
        if is_new && view.leader == Some(view.node) {
            self.offices.push(Office { seen_us, term: view.term, leader: view.node });
        }
        self.views.insert(view.node, (now(), view));
    }
}

#[derive(Debug)]
struct Shared {
    origin: Instant,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn us(&self, moment: Instant) -> u64 {
        as_us(moment.saturating_duration_since(self.origin))
    }
}

/// Looks until it is told to finish.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<Shared>,
    watched: Mutex<BTreeMap<u64, Arc<AtomicBool>>>,
}

impl Observer {
    /// Begins to look at these nodes. Moments count from `origin`.
    pub fn of(nodes: &[(u64, SocketAddr)], origin: Instant) -> Self {
        let shared = Arc::new(Shared { origin, state: Mutex::new(State::default()) });
        let observer = Self { shared, watched: Mutex::new(BTreeMap::new()) };
        for (node, address) in nodes {
            observer.watch(*node, *address);
        }
        observer
    }

    /// Looks at this node too from now on.
    pub fn watch(&self, node: u64, address: SocketAddr) {
        let stop = Arc::new(AtomicBool::new(false));
        let (reading, stop_reading) = (Arc::clone(&self.shared), Arc::clone(&stop));
        thread::spawn(move || {
            let proved = |answer: &Answer| {
                if matches!(answer.status, 200 | 404) {
                    reading.state().proved(reading.us(answer.sent), reading.us(answer.received));
                }
            };
            ask_on_and_on(&stop_reading, address, READ_PATH, (READ_EVERY, READ_PATIENCE), proved, || {});
        });
        let (viewing, stop_viewing) = (Arc::clone(&self.shared), Arc::clone(&stop));
        thread::spawn(move || {
            let viewed = |answer: &Answer| {
                if let Some(view) = View::read(answer) {
                    viewing.state().viewed(viewing.us(answer.received), view);
                }
            };
            let refused = || {
                let at_us = viewing.us(now());
                viewing.state().unreachable.push(Unreachable { node, at_us });
            };
            ask_on_and_on(&stop_viewing, address, VIEW_PATH, (VIEW_EVERY, VIEW_PATIENCE), viewed, refused);
        });
        self.watched().insert(node, stop);
    }

    /// Looks no more at a node that is gone for good.
    pub fn leave(&self, node: u64) {
        if let Some(stop) = self.watched().remove(&node) {
            stop.store(true, Ordering::Relaxed);
        }
        self.shared.state().views.remove(&node);
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<AtomicBool>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who leads now: the node that says so of itself, of the highest term.
    pub fn leader(&self) -> Option<u64> {
        let state = self.shared.state();
        let fresh = state.views.values().filter(|(at, _)| at.elapsed() <= VIEW_FRESH).map(|(_, view)| view);
        let leading = fresh.filter(|view| view.leader == Some(view.node));
        leading.max_by_key(|view| view.term).map(|view| view.node)
    }

    /// Ends looking.
    pub fn finish(self) -> Observed {
        // What is asked now is answered or given up within seconds; nobody waits for it.
        self.watched().values().for_each(|stop| stop.store(true, Ordering::Relaxed));
        let end_us = self.shared.us(now());
        let mut state = self.shared.state();
        if let Some(begin_us) = state.last_sent_us {
            state.note_gap(begin_us, end_us);
        }
        Observed {
            leaderless: Leaderless::merged(std::mem::take(&mut state.leaderless)),
            offices: std::mem::take(&mut state.offices),
            unreachable: std::mem::take(&mut state.unreachable),
        }
    }
}

/// Asks one node the same question until told to stop, on one connection as long as that lasts.
fn ask_on_and_on(
    stop: &AtomicBool,
    address: SocketAddr,
    path: &str,
    (every, patience): (Duration, Duration),
    mut answered: impl FnMut(&Answer),
    mut refused: impl FnMut(),
) {
    let bytes = request("GET", path, None);
    let mut conn = None;
    while !stop.load(Ordering::Relaxed) {
        let open = conn.take().map_or_else(|| Conn::open(address).inspect_err(|_| refused()), Ok);
        let asked = open.and_then(|mut open| {
            let answer = open.call(&bytes, patience)?;
            Ok((open, answer))
        });
        if let Ok((open, answer)) = asked {
            answered(&answer);
            conn = Some(open);
        }
        thread::sleep(every);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::clock::wait_for;

    fn gaps_of(proofs: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut state = State::default();
        for (sent_ms, received_ms) in proofs {
            state.proved(sent_ms * 1_000, received_ms * 1_000);
        }
        let gaps = Leaderless::merged(state.leaderless).into_iter();
        gaps.map(|gap| (gap.begin_us / 1_000, gap.end_us / 1_000)).collect()
    }

    #[test]
    fn a_gap_reaches_from_the_last_question_before_it_to_the_first_answer_after_it() {
        // Nobody knows when between 60 and 900 the third was true: right at its begin, or at its end.
        assert_eq!(gaps_of(&[(0, 10), (40, 50), (60, 900), (910, 920)]), [(40, 920)]);
        assert_eq!(gaps_of(&[(0, 10), (40, 50), (890, 900)]), [(40, 900)]);
        assert_eq!(gaps_of(&[(0, 10), (40, 50), (80, 90)]), []);
    }

    #[test]
    fn an_answer_to_an_old_question_does_not_move_the_begin_back() {
        assert_eq!(gaps_of(&[(100, 110), (0, 115), (500, 510)]), [(100, 510)]);
    }

    #[test]
    fn gaps_seen_by_several_nodes_are_one() {
        let gap = |begin_us, end_us| Leaderless { begin_us, end_us };
        assert_eq!(Leaderless::merged(vec![gap(5, 9), gap(1, 6), gap(20, 30)]), [gap(1, 9), gap(20, 30)]);
    }

    #[test]
    fn a_node_that_takes_no_connections_is_noted() {
        let nobody: SocketAddr = ([127, 0, 0, 1], 1).into();
        let observer = Observer::of(&[(7, nobody)], now());
        let is_noted = || observer.shared.state().unreachable.iter().any(|seen| seen.node == 7).then_some(());
        assert!(wait_for(secs(30), is_noted).is_some());
        observer.finish();
    }

    #[test]
    fn an_office_is_noted_once_and_only_by_its_own_leader() {
        let mut state = State::default();
        let (voters, learners) = (BTreeSet::from([1, 2, 3]), BTreeSet::new());
        let view = |node, term, leader| {
            let (voters, learners) = (voters.clone(), learners.clone());
            View { node, term, leader, membership: None, voters, learners }
        };
        state.viewed(1, view(1, 2, Some(1)));
        state.viewed(2, view(2, 2, Some(1)));
        state.viewed(3, view(2, 3, None));
        state.viewed(4, view(3, 3, Some(3)));
        state.viewed(5, view(1, 2, Some(1)));
        let offices: Vec<_> = state.offices.iter().map(|office| (office.seen_us, office.leader)).collect();
        assert_eq!(offices, [(1, 1), (4, 3)]);
    }
}
