//! How each kind is done, undone, and judged.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::action::{Action, Disturbance, action};
use super::members::{Change, Operator};
use super::schedule::Planned;
use crate::clock::{as_us, ms, pause_until, secs, wait_for};
use crate::cluster::Cluster;
use crate::cluster::proxy::{Deeds, Mode, Proxy};
use crate::observer::Observer;
use crate::workload::Endpoints;

/// A node that was asked to end and has not by then is killed.
const END_WITHIN: Duration = secs(15);
/// So late a fault still begins.
const LATE: Duration = secs(1);
/// A leader may just be chosen when a fault is to hit it.
const LEADER_WITHIN: Duration = ms(800);

/// A fault that was done.
#[derive(Clone, Debug)]
pub struct Struck {
    /// As it was planned.
    pub planned: Planned,
    /// Whom it hit, for people.
    pub target: String,
    /// The nodes whose processes it hit.
    pub processes: Vec<u64>,
    /// When the first of them was hit, if that was later than its begin.
    pub processes_from_us: Option<u64>,
    /// The nodes whose links to clients it hit.
    pub client_links: Vec<u64>,
    /// Who was said to lead after a transfer.
    pub new_leader: Option<u64>,
    /// Whether a change of the members had been asked for and not been answered when the leader was killed in it.
    pub was_under_way: bool,
    /// When it began, in microseconds of the run.
    pub begin_us: u64,
    /// When it was undone.
    pub end_us: u64,
    /// Whether what it hit led when it began, for kinds that mean the leader.
    pub hit_leader: bool,
    /// Whether the processes it hit ended, stopped and went on as they should.
    pub processes_obeyed: bool,
    /// What the proxies that it set have done meanwhile.
    pub deeds: Deeds,
    /// What went wrong in doing it.
    pub trouble: Option<String>,
}

/// A fault that goes on.
struct Ongoing {
    struck: Struck,
    action: Action,
    before: Vec<(Arc<Proxy>, Deeds)>,
}

/// Does faults to a cluster.
pub struct Striker<'a> {
    cluster: &'a mut Cluster,
    observer: &'a Observer,
    endpoints: &'a Endpoints,
    origin: Instant,
    ongoing: Vec<Ongoing>,
    done: Vec<Struck>,
    broken: Vec<String>,
}

impl<'a> Striker<'a> {
    /// One that counts moments from `origin`, and tells clients which nodes come and go. The nodes end with the thread
    /// that has it.
    pub fn new(cluster: &'a mut Cluster, observer: &'a Observer, endpoints: &'a Endpoints, origin: Instant) -> Self {
        let (ongoing, done, broken) = (Vec::new(), Vec::new(), Vec::new());
        Self { cluster, observer, endpoints, origin, ongoing, done, broken }
    }

    /// Does all that is planned, each at its time; afterwards everything that was done is undone.
    pub fn run(&mut self, planned: &[Planned]) -> Vec<Struck> {
        let mut coming = planned.iter().cloned().peekable();
        loop {
            let begin_ms = coming.peek().map_or(u64::MAX, |next| next.begin_ms);
            let ending = (0..self.ongoing.len()).min_by_key(|at| self.ongoing[*at].struck.planned.end_ms());
            match ending {
                Some(at) if self.ongoing[at].struck.planned.end_ms() <= begin_ms => {
                    pause_until(self.origin + ms(self.ongoing[at].struck.planned.end_ms()));
                    let ended = self.ongoing.swap_remove(at);
                    let struck = self.end(ended);
                    self.done.push(struck);
                }
                _ => {
                    let Some(next) = coming.next() else { return std::mem::take(&mut self.done) };
                    pause_until(self.origin + ms(next.begin_ms));
                    // What a change of the members has kept waiting for too long would come in a calm time.
                    if self.origin.elapsed() < ms(next.end_ms()) + LATE {
                        let begun = self.begin(next);
                        self.ongoing.push(begun);
                    }
                }
            }
        }
    }

    /// What the product promises and did not keep, whatever clients saw.
    pub fn broken(self) -> Vec<String> {
        self.broken
    }

    fn us(&self) -> u64 {
        as_us(self.origin.elapsed())
    }

    fn begin(&mut self, planned: Planned) -> Ongoing {
        let ids = self.cluster.ids();
        let leader = wait_for(LEADER_WITHIN, || self.observer.leader().filter(|leader| ids.contains(leader)));
        let (action, target) = action(planned.kind, planned.seed, leader, &ids);
        let before = self.links_of(&action).into_iter().map(|link| (Arc::clone(&link), link.deeds())).collect();
        let mut struck = Struck {
            planned,
            target,
            processes: action.processes(),
            processes_from_us: None,
            client_links: action.client_links(),
            new_leader: None,
            was_under_way: false,
            begin_us: self.us(),
            end_us: 0,
            hit_leader: leader.is_some(),
            processes_obeyed: true,
            deeds: Deeds::default(),
            trouble: None,
        };
        let begun = match action {
            Action::Members(change) => self.change_members(change, &mut struck),
            _ => self.do_it(&action),
        };
        struck.note(begun);
        Ongoing { struck, action, before }
    }

    fn end(&mut self, ongoing: Ongoing) -> Struck {
        let Ongoing { mut struck, action, before } = ongoing;
        let undone = self.undo(&action);
        struck.note(undone);
        mend_all(struck, &action, before, self.origin)
    }

    /// The links that an action disturbs; those of nodes that were removed meanwhile are gone.
    fn links_of(&self, action: &Action) -> Vec<Arc<Proxy>> {
        match action {
            Action::Peers(links) => {
                links.iter().filter_map(|(from, to, _)| self.cluster.peer_link(*from, *to)).cloned().collect()
            }
            Action::Client(id, _) => self.cluster.client_link(*id).into_iter().cloned().collect(),
            Action::Kill(_) | Action::Restart(_) | Action::Freeze(_) | Action::Terminate(_) | Action::Members(_) => {
                Vec::new()
            }
        }
    }

    fn do_it(&mut self, action: &Action) -> io::Result<bool> {
        match action {
            Action::Kill(ids) => {
                let killed = ids.iter().filter(|id| self.cluster.node_mut(**id).kill()).count();
                Ok(killed == ids.len())
            }
            Action::Restart(id) => {
                let was_killed = self.cluster.node_mut(*id).kill();
                self.cluster.start_node(*id)?;
                Ok(was_killed)
            }
            Action::Freeze(ids) => {
                ids.iter().try_for_each(|id| self.cluster.node(*id).freeze())?;
                Ok(true)
            }
            Action::Terminate(id) => {
                self.cluster.node(*id).signal(Signal::TERM)?;
                Ok(true)
            }
            Action::Peers(links) => {
                for (from, to, how) in links {
                    if let Some(link) = self.cluster.peer_link(*from, *to) {
                        disturb(link, *how);
                    }
                }
                Ok(true)
            }
            Action::Client(id, how) => {
                if let Some(link) = self.cluster.client_link(*id) {
                    disturb(link, *how);
                }
                Ok(true)
            }
            Action::Members(_) => Ok(true),
        }
    }

    fn change_members(&mut self, change: Change, struck: &mut Struck) -> io::Result<bool> {
        // It takes its time, and what disturbs links meanwhile must not last for longer than it should.
        let (ongoing, ended, origin) = (&mut self.ongoing, &mut self.done, self.origin);
        let mut meanwhile = || mend_due(ongoing, ended, origin);
        let seed = struck.planned.seed;
        let mut operator = Operator::new(self.cluster, self.observer, self.endpoints, seed, &mut meanwhile);
        let changed = operator.carry_out(change);
        let done = operator.done();
        struck.processes = done.hit;
        struck.processes_from_us = done.hit_from.map(|moment| as_us(moment.saturating_duration_since(self.origin)));
        struck.new_leader = done.new_leader;
        struck.was_under_way = done.was_under_way;
        struck.target = done.steps.join(", ");
        self.broken.extend(done.broken);
        changed.map(|()| true)
    }

    fn undo(&mut self, action: &Action) -> io::Result<bool> {
        match action {
            Action::Kill(ids) => {
                ids.iter().try_for_each(|id| self.cluster.start_node(*id))?;
                Ok(true)
            }
            Action::Restart(_) | Action::Members(_) | Action::Peers(_) | Action::Client(..) => Ok(true),
            Action::Freeze(ids) => {
                ids.iter().try_for_each(|id| self.cluster.node(*id).thaw())?;
                Ok(true)
            }
            Action::Terminate(id) => {
                let node = self.cluster.node_mut(*id);
                let status = wait_for(END_WITHIN, || node.exit_status());
                if status.is_none() {
                    node.kill();
                }
                self.cluster.start_node(*id)?;
                Ok(status.is_some_and(|status| status.success()))
            }
        }
    }
}

impl Struck {
    fn note(&mut self, outcome: io::Result<bool>) {
        match outcome {
            Ok(obeyed) => self.processes_obeyed &= obeyed,
            Err(error) => {
                self.processes_obeyed = false;
                self.trouble = Some(error.to_string());
            }
        }
    }
}

/// Ends what was done to links.
fn mend_all(mut struck: Struck, action: &Action, links: Vec<(Arc<Proxy>, Deeds)>, origin: Instant) -> Struck {
    for (link, _) in &links {
        mend(link, action.disturbance());
    }
    for (link, before) in links {
        struck.deeds += link.deeds().since(before);
    }
    struck.end_us = as_us(origin.elapsed());
    struck
}

/// Ends what is due among the disturbances of links.
fn mend_due(ongoing: &mut Vec<Ongoing>, done: &mut Vec<Struck>, origin: Instant) {
    let is_due = |ongoing: &mut Ongoing| {
        ongoing.action.disturbance().is_some() && origin.elapsed() >= ms(ongoing.struck.planned.end_ms())
    };
    for due in ongoing.extract_if(.., is_due) {
        done.push(mend_all(due.struck, &due.action, due.before, origin));
    }
}

fn disturb(link: &Proxy, how: Disturbance) {
    match how {
        Disturbance::Mode(mode) => link.set(mode),
        Disturbance::Delay(delay) => link.delay(delay),
        Disturbance::Slow(bytes_per_s) => link.slow(Some(bytes_per_s)),
        Disturbance::Reset => link.reset_all(),
    }
}

/// Ends one way of disturbing a link; others that go on there stay.
fn mend(link: &Proxy, how: Option<Disturbance>) {
    match how {
        Some(Disturbance::Mode(_)) => link.set(Mode::Pass),
        Some(Disturbance::Delay(_)) => link.delay(Duration::ZERO),
        Some(Disturbance::Slow(_)) => link.slow(None),
        // At its end once more: what was opened meanwhile.
        Some(Disturbance::Reset) => link.reset_all(),
        None => {}
    }
}
