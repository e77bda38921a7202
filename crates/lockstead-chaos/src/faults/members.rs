//! Changes of the members, as an operator makes them over the admin API.

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::midway::Midway;
use crate::clock::{ms, now, secs, wait_for};
use crate::cluster::Cluster;
use crate::cluster::view::view_of;
use crate::dice::Dice;
use crate::http::{Answer, Conn, request};
use crate::observer::Observer;
use crate::workload::{Endpoint, Endpoints};

/// A call of the API that is not granted by then, however often it is repeated, is a fault that failed.
const GRANTED_WITHIN: Duration = secs(20);
/// For how long the API waits at a time for a node to be there, or to catch up.
const WAIT_MS: u64 = 500;
/// An answer comes by then, beyond the wait.
const PATIENCE: Duration = secs(8);
/// A change that was answered is shown by then.
const SHOWN_WITHIN: Duration = secs(10);
/// A removed node has ended by then.
const ENDED_WITHIN: Duration = secs(15);
/// The exit code of a node that was removed.
const REMOVED: i32 = 12;
/// A member that is lost can only be removed by a majority without it.
const SPARE_SIZE: usize = 3;

/// What is to become of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There is one more; if there are too many then, others go.
    Add,
    /// This one goes; if there were too few then, others come first.
    Remove(u64),
    /// This one loses its data and goes; another comes.
    Replace(u64),
    /// This one leads, or any other than now.
    Lead(Option<u64>),
    /// The leader is killed in the middle of it.
    Midway(Midway),
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// For people.
    pub(super) steps: Vec<String>,
    /// The nodes that were removed, or killed.
    pub(super) hit: Vec<u64>,
    /// From when on the first of them was leaving, or dead.
    pub(super) hit_from: Option<Instant>,
    /// Who leads, as the answer to a transfer says.
    pub(super) new_leader: Option<u64>,
    /// A change had been asked for and not been answered when the leader was killed in it.
    pub(super) was_under_way: bool,
    /// What nodes did that they must not.
    pub(super) broken: Vec<String>,
}

/// A call about the members.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Any node is asked but this.
    pub(super) not_at: u64,
    method: &'static str,
    path: String,
    body: Value,
}

impl Call {
    pub(super) fn to_promote(id: u64) -> Self {
        let path = format!("/v1/admin/members/{id}/promote");
        Self { not_at: id, method: "POST", path, body: json!({"wait_ms": WAIT_MS}) }
    }

    pub(super) fn to_remove(id: u64) -> Self {
        Self { not_at: id, method: "DELETE", path: format!("/v1/admin/members/{id}"), body: Value::Null }
    }

    pub(super) fn to_lead(to: Option<u64>) -> Self {
        Self { not_at: 0, method: "POST", path: "/v1/admin/leader".to_owned(), body: json!({"to": to}) }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let text = if self.body.is_null() { String::new() } else { self.body.to_string() };
        request(self.method, &self.path, (!text.is_empty()).then_some(text.as_bytes()))
    }

    fn patience(&self) -> Duration {
        PATIENCE + ms(self.body["wait_ms"].as_u64().unwrap_or_default())
    }
}

/// Somebody who adds, removes and replaces nodes, by calls to any of them. The size stays within one of the planned
/// one.
pub(super) struct Operator<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) observer: &'a Observer,
    endpoints: &'a Endpoints,
    pub(super) dice: Dice,
    pub(super) meanwhile: &'a mut dyn FnMut(),
    pub(super) done: Done,
}

impl<'a> Operator<'a> {
    /// One that does something else between its calls.
    pub(super) fn new(
        cluster: &'a mut Cluster,
        observer: &'a Observer,
        endpoints: &'a Endpoints,
        seed: u64,
        meanwhile: &'a mut dyn FnMut(),
    ) -> Self {
        Self { cluster, observer, endpoints, dice: Dice::new(seed, 4), meanwhile, done: Done::default() }
    }

    /// What was done, also if not all of it.
    pub(super) fn done(self) -> Done {
        self.done
    }

    /// Makes the change, and looks whether it is there.
    pub(super) fn carry_out(&mut self, change: Change) -> io::Result<()> {
        let planned = self.cluster.planned();
        self.tidy()?;
        match change {
            Change::Add => {
                self.add()?;
                self.shrink_to(planned + 1)
            }
            Change::Remove(id) => {
                self.grow_to(planned.max(2))?;
                self.remove(self.still(id))
            }
            Change::Replace(id) => {
                let size = self.cluster.size();
                self.grow_to(SPARE_SIZE)?;
                self.lose(self.still(id))?;
                self.grow_to(size)?;
                self.shrink_to(size)
            }
            Change::Lead(_) | Change::Midway(Midway::Lead(_)) if self.cluster.size() < 2 => {
                Err(io::Error::other("nobody else could lead"))
            }
            Change::Lead(to) => self.transfer(to),
            Change::Midway(change) => self.lose_leader_midway(change),
        }
    }

    /// Removes what an earlier change left unfinished.
    fn tidy(&mut self) -> io::Result<()> {
        for id in self.cluster.unfinished() {
            self.is_gone(id)?;
            self.cluster.forget(id);
        }
        Ok(())
    }

    /// This node, or another if it was not there to stay.
    pub(super) fn still(&self, id: u64) -> u64 {
        let ids = self.cluster.ids();
        if ids.contains(&id) { id } else { ids.first().copied().unwrap_or(id) }
    }

    pub(super) fn grow_to(&mut self, size: usize) -> io::Result<()> {
        while self.cluster.size() < size {
            self.add()?;
        }
        Ok(())
    }

    pub(super) fn shrink_to(&mut self, size: usize) -> io::Result<()> {
        while self.cluster.size() > size {
            let id = *self.dice.pick(&self.cluster.ids());
            self.remove(id)?;
        }
        Ok(())
    }

    /// A new node waits to be added and given its vote, or sees to both by itself.
    fn add(&mut self) -> io::Result<()> {
        let by_itself = self.dice.chance(30);
        let id = if by_itself {
            let members: Vec<String> = self.cluster.nodes().map(|node| node.api_address.to_string()).collect();
            self.start_new(&["--join".to_owned(), members.join(",")])?
        } else {
            let id = self.start_new(&["--standby".to_owned()])?;
            self.insist(&self.call_to_add(id))?;
            id
        };
        self.must_be_member(id)?;
        // Also if it has seen to that: what is shown may be half of a change, which the next fault would have to spare.
        self.insist(&Call::to_promote(id))?;
        self.is_one_of_them(id)?;
        self.done.steps.push(format!("node {id} {}", if by_itself { "joined" } else { "added" }));
        Ok(())
    }

    /// A node on an empty directory, which is no member yet.
    pub(super) fn start_new(&mut self, entry: &[String]) -> io::Result<u64> {
        let id = self.cluster.start_new(entry)?;
        self.cluster.mark_unfinished(id);
        Ok(id)
    }

    pub(super) fn call_to_add(&self, id: u64) -> Call {
        let (peer, api) = (self.cluster.peer_address(id), self.cluster.node(id).api_address);
        let body = json!({"id": id, "peer": peer.to_string(), "api": api.to_string(), "wait_ms": WAIT_MS});
        Call { not_at: id, method: "POST", path: "/v1/admin/members".to_owned(), body }
    }

    pub(super) fn must_be_member(&mut self, id: u64) -> io::Result<()> {
        self.must_show(id, &format!("node {id} is no member"), |voter, learner| voter || learner)
    }

    /// A node that was given its vote shows to have it; clients learn of it.
    pub(super) fn is_one_of_them(&mut self, id: u64) -> io::Result<()> {
        self.must_show(id, &format!("node {id} has no vote"), |voter, _| voter)?;
        self.cluster.mark_finished(id);
        self.observer.watch(id, self.cluster.node(id).api_address);
        let (address, link) = (self.cluster.client_address(id), self.cluster.client_link(id).cloned());
        self.endpoints.learn(Endpoint { node: id, address, link });
        Ok(())
    }

    /// A node is removed while it runs, and ends by itself.
    fn remove(&mut self, id: u64) -> io::Result<()> {
        self.is_leaving(id);
        self.is_gone(id)?;
        self.must_end(id)
    }

    /// A node that was removed ends by itself.
    pub(super) fn must_end(&mut self, id: u64) -> io::Result<()> {
        let status = wait_for(ENDED_WITHIN, || {
            (self.meanwhile)();
            self.cluster.node_mut(id).exit_status()
        });
        self.cluster.forget(id);
        if status.and_then(|status| status.code()) != Some(REMOVED) {
            let ended = status.map_or("it ran on".to_owned(), |status| status.to_string());
            let broken = format!("node {id} was removed and must end with exit code {REMOVED}: {ended}");
            self.done.broken.push(broken.clone());
            return Err(io::Error::other(broken));
        }
        self.done.steps.push(format!("node {id} removed"));
        Ok(())
    }

    /// A node is killed, its data are lost, and it is removed.
    fn lose(&mut self, id: u64) -> io::Result<()> {
        self.is_leaving(id);
        let node = self.cluster.node_mut(id);
        node.kill();
        node.wipe()?;
        self.is_gone(id)?;
        self.cluster.forget(id);
        self.done.steps.push(format!("node {id} wiped and removed"));
        Ok(())
    }

    pub(super) fn is_leaving(&mut self, id: u64) {
        self.is_hit(id);
        self.cluster.mark_unfinished(id);
    }

    pub(super) fn is_hit(&mut self, id: u64) {
        self.done.hit_from.get_or_insert_with(now);
        self.done.hit.push(id);
    }

    /// The members are told to do without it, and show that they do; so do clients.
    pub(super) fn is_gone(&mut self, id: u64) -> io::Result<()> {
        self.insist(&Call::to_remove(id))?;
        self.endpoints.forget(id);
        self.observer.leave(id);
        self.must_show(id, &format!("node {id} is still a member"), |voter, learner| !voter && !learner)
    }

    fn transfer(&mut self, to: Option<u64>) -> io::Result<()> {
        let answer = self.insist(&Call::to_lead(to))?;
        self.done.new_leader = answer.body["leader"].as_u64();
        let to = to.map_or("any".to_owned(), |to| to.to_string());
        self.done.steps.push(format!("leadership to {to}"));
        Ok(())
    }

    /// Makes a call until it is granted; each may be repeated.
    pub(super) fn insist(&mut self, call: &Call) -> io::Result<Answer> {
        self.insist_within(GRANTED_WITHIN, call)
    }

    /// Asks one node after the other until one grants it. Deleting a node that never was a member is granted too.
    pub(super) fn insist_within(&mut self, within: Duration, call: &Call) -> io::Result<Answer> {
        let (bytes, patience) = (call.bytes(), call.patience().min(within));
        let others = self.others(call.not_at);
        let mut last = "nobody to ask".to_owned();
        let granted = wait_for(within, || {
            (self.meanwhile)();
            let address = self.cluster.node(*others.get(self.dice.index(others.len()))?).api_address;
            match Conn::open(address).and_then(|mut conn| conn.call(&bytes, patience)) {
                Ok(answer) if answer.status == 200 => return Some(answer),
                Ok(answer) if call.method == "DELETE" && answer.code() == "unknown_node" => return Some(answer),
                Ok(answer) => last = answer.text,
                Err(error) => last = error.to_string(),
            }
            None
        });
        granted.ok_or_else(|| io::Error::other(format!("{} {}: {last}", call.method, call.path)))
    }

    pub(super) fn others(&self, not_this: u64) -> Vec<u64> {
        self.cluster.ids().into_iter().filter(|id| *id != not_this).collect()
    }

    /// Waits until some other node shows this one as told: as a voter, as a learner.
    fn must_show(&mut self, id: u64, otherwise: &str, is_so: impl Fn(bool, bool) -> bool) -> io::Result<()> {
        let shown = wait_for(SHOWN_WITHIN, || {
            (self.meanwhile)();
            let others = self.cluster.nodes().filter(|node| node.id != id);
            let views = others.filter_map(|node| view_of(node.api_address, PATIENCE));
            views.into_iter().any(|view| is_so(view.voters.contains(&id), view.learners.contains(&id))).then_some(())
        });
        shown.ok_or_else(|| io::Error::other(otherwise.to_owned()))
    }
}
