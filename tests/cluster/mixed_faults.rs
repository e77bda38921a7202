//! Clients that go about their work while one fault follows another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::harness::api::{Api, fresh_request_id};
use crate::harness::clock::{as_ms, ms, now, pause_until, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::gather::{all, client};
use crate::harness::history::History;
use crate::harness::http::Answer;
use crate::harness::locker::Held;
use crate::harness::proxy::Mode;
use crate::harness::scale::scaled;

const CLIENTS: usize = 9;
const LOCKS: usize = 3;
/// How often a client repeats a request whose outcome it does not know.
const TRIES: usize = 6;

/// One client: what it knows of the cluster, and where it notes its holds.
struct Worker {
    number: usize,
    apis: Vec<Api>,
    history: Arc<History>,
}

impl Worker {
    /// Repeats a request at one node after the other until it is decided. Says whether a try before had an unknown end.
    fn ask(&self, turn: usize, ask: impl Fn(&Api) -> std::io::Result<Answer>) -> Option<(Answer, bool)> {
        for attempt in 0..TRIES {
            let api = self.apis[(self.number + turn + attempt) % self.apis.len()].patient_for(ms(1_500));
            match ask(&api) {
                Ok(answer) if answer.status != 503 => return Some((answer, attempt > 0)),
                _undecided => thread::sleep(ms(30)),
            }
        }
        None
    }

    fn acquire(&self, turn: usize) -> Option<Held> {
        let name = format!("lock {}", (self.number + turn) % LOCKS);
        let ttl = [ms(400), secs(1), secs(2)][turn % 3];
        let request_id = fresh_request_id();
        let body = json!({"name": name, "ttl_ms": as_ms(ttl), "wait_ms": 500, "request_id": request_id});
        let (answer, _) = self.ask(turn, |api| api.acquire(&body))?;
        match answer.status {
            200 => Some(Held::from(&answer)),
            _refused => {
                answer.must_be(409, "held");
                None
            }
        }
    }

    /// Lets go, and notes until when it counted on the hold.
    fn release(&self, turn: usize, held: &Held) {
        let released = now();
        self.history.note(held, Some(released));
        let Some((answer, repeated)) = self.ask(turn, |api| api.release(&held.name, &held.token)) else { return };
        let may_be_gone = repeated || answer.received >= held.client_deadline();
        assert!(answer.status == 200 || (may_be_gone && answer.code() == "not_holder"), "{held:?}: {answer:?}");
    }

    /// Renews once; the hold as it is after that, or as it was if nobody said.
    fn renew(&self, turn: usize, held: Held) -> Held {
        match self.ask(turn, |api| api.renew(&held.name, &held.token, as_ms(held.ttl))) {
            None => held,
            Some((answer, _)) if answer.status == 200 => held.renewed(&answer),
            Some((answer, _)) => {
                let answer = answer.must_be(409, "not_holder");
                assert!(answer.received >= held.client_deadline(), "a live hold is gone: {held:?}: {answer:?}");
                held
            }
        }
    }

    fn turn(&self, turn: usize) -> bool {
        let Some(held) = self.acquire(turn) else { return false };
        match turn % 4 {
            0 => self.release(turn, &held),
            1 => self.history.note(&held, None),
            2 => {
                pause_until(held.received + held.ttl / 2);
                self.release(turn, &held);
            }
            _ => {
                pause_until(held.received + held.ttl / 3);
                let renewed = self.renew(turn, held.clone());
                // It was held all the while, from the first grant on.
                self.history.note_until(&held, renewed.client_deadline());
            }
        }
        true
    }
}

/// One fault, from its begin to its end.
fn strike(cluster: &mut Cluster, number: u64) {
    let leader = cluster.leader();
    let follower = cluster.others(leader)[usize::try_from(number % 2).unwrap()];
    let begin = now();
    match number % 6 {
        0 => {
            cluster.kill_and_restart(leader);
        }
        1 => freeze(cluster, leader, ms(1_500)),
        2 => disturb(cluster, leader, Mode::Cut),
        3 => {
            cluster.node(follower).kill();
            pause_until(begin + ms(700));
            cluster.node(follower).start();
        }
        4 => disturb(cluster, leader, Mode::Stall),
        _ => freeze(cluster, follower, ms(800)),
    }
}

fn freeze(cluster: &mut Cluster, id: u64, length: Duration) {
    let begin = now();
    cluster.node(id).freeze();
    pause_until(begin + length);
    cluster.node(id).thaw();
}

fn disturb(cluster: &Cluster, id: u64, mode: Mode) {
    let begin = now();
    cluster.links_of(id).for_each(|link| link.set(mode));
    pause_until(begin + ms(1_500));
    cluster.links_of(id).for_each(|link| link.set(Mode::Pass));
}

#[test]
fn no_two_holders_overlap_and_no_grant_vanishes_while_faults_follow_each_other() {
    let mut cluster = Setup::of(3).with_proxied_peers().start();
    let (history, stop) = (Arc::new(History::default()), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let worker = Worker { number, apis: cluster.apis(), history: Arc::clone(&history) };
            let stop = Arc::clone(&stop);
            client(move || {
                let turns = (0..).take_while(|_| !stop.load(Ordering::Relaxed));
                turns.filter(|turn| worker.turn(*turn)).count()
            })
        })
        .collect();
    for number in 0..scaled(12, 120) {
        let begin = now();
        strike(&mut cluster, number);
        cluster.when_led_again(&cluster.ids());
        pause_until(begin + secs(2));
    }
    stop.store(true, Ordering::Relaxed);
    let grants = all(workers);
    history.check();
    let in_all: usize = grants.iter().sum();
    assert!(grants.iter().all(|grants| *grants >= 1) && in_all >= 4 * CLIENTS, "everybody gets on: {grants:?}");
    cluster.wait_until_ready();
    cluster.must_work();
}
