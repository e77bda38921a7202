//! Changes of the members, as an operator makes them over the admin API.

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

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
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// For people.
    pub(super) steps: Vec<String>,
    /// The nodes that were removed.
    pub(super) gone: Vec<u64>,
    /// From when on the first of them was leaving.
    pub(super) gone_from: Option<Instant>,
    /// Who leads, as the answer to a transfer says.
    pub(super) new_leader: Option<u64>,
    /// What nodes did that they must not.
    pub(super) broken: Vec<String>,
}

/// Somebody who adds, removes and replaces nodes, by calls to any of them. The size stays within one of the planned one.
pub(super) struct Operator<'a> {
    cluster: &'a mut Cluster,
    observer: &'a Observer,
    endpoints: &'a Endpoints,
    dice: Dice,
    meanwhile: &'a mut dyn FnMut(),
    done: Done,
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
            Change::Lead(_) if self.cluster.size() < 2 => Err(io::Error::other("nobody else could lead")),
            Change::Lead(to) => self.transfer(to),
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
    fn still(&self, id: u64) -> u64 {
        let ids = self.cluster.ids();
        if ids.contains(&id) { id } else { ids.first().copied().unwrap_or(id) }
    }

    fn grow_to(&mut self, size: usize) -> io::Result<()> {
        while self.cluster.size() < size {
            self.add()?;
        }
        Ok(())
    }

    fn shrink_to(&mut self, size: usize) -> io::Result<()> {
        while self.cluster.size() > size {
            let id = *self.dice.pick(&self.cluster.ids());
            self.remove(id)?;
        }
        Ok(())
    }

    /// A new node waits to be added and given its vote, or sees to both by itself.
    fn add(&mut self) -> io::Result<()> {
        let by_itself = self.dice.chance(30);
        let entry = if by_itself {
            let members: Vec<String> = self.cluster.nodes().map(|node| node.api_address.to_string()).collect();
            ["--join".to_owned(), members.join(",")].to_vec()
        } else {
            vec!["--standby".to_owned()]
        };
        let id = self.cluster.start_new(&entry)?;
        self.cluster.mark_unfinished(id);
        if !by_itself {
            let (peer, api) = (self.cluster.peer_address(id), self.cluster.node(id).api_address);
            let body = json!({"id": id, "peer": peer.to_string(), "api": api.to_string(), "wait_ms": WAIT_MS});
            self.insist(id, "POST", "/v1/admin/members", &body)?;
        }
        self.must_show(id, &format!("node {id} is no member"), |voter, learner| voter || learner)?;
        // Also if it has seen to that: what is shown may be half of a change, which the next fault would have to spare.
        let promote = format!("/v1/admin/members/{id}/promote");
        self.insist(id, "POST", &promote, &json!({"wait_ms": WAIT_MS}))?;
        self.must_show(id, &format!("node {id} has no vote"), |voter, _| voter)?;
        self.cluster.mark_finished(id);
        self.observer.watch(id, self.cluster.node(id).api_address);
        let (address, link) = (self.cluster.client_address(id), self.cluster.client_link(id).cloned());
        self.endpoints.learn(Endpoint { node: id, address, link });
        self.done.steps.push(format!("node {id} {}", if by_itself { "joined" } else { "added" }));
        Ok(())
    }

    /// A node is removed while it runs, and ends by itself.
    fn remove(&mut self, id: u64) -> io::Result<()> {
        self.is_leaving(id);
        self.is_gone(id)?;
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

    fn is_leaving(&mut self, id: u64) {
        self.done.gone_from.get_or_insert_with(now);
        self.done.gone.push(id);
        self.cluster.mark_unfinished(id);
    }

    /// The members are told to do without it, and show that they do; so do clients.
    fn is_gone(&mut self, id: u64) -> io::Result<()> {
        self.insist(id, "DELETE", &format!("/v1/admin/members/{id}"), &Value::Null)?;
        self.endpoints.forget(id);
        self.observer.leave(id);
        self.must_show(id, &format!("node {id} is still a member"), |voter, learner| !voter && !learner)
    }

    fn transfer(&mut self, to: Option<u64>) -> io::Result<()> {
        let answer = self.insist(0, "POST", "/v1/admin/leader", &json!({"to": to}))?;
        self.done.new_leader = answer.body["leader"].as_u64();
        let to = to.map_or("any".to_owned(), |to| to.to_string());
        self.done.steps.push(format!("leadership to {to}"));
        Ok(())
    }

    /// Asks one node after the other, but not this one, until one grants it. Each call may be repeated. Deleting a node that
    /// never was a member is granted too.
    fn insist(&mut self, not_at: u64, method: &str, path: &str, body: &Value) -> io::Result<Answer> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let bytes = request(method, path, (!text.is_empty()).then_some(text.as_bytes()));
        let within = PATIENCE + ms(body["wait_ms"].as_u64().unwrap_or_default());
        let others: Vec<u64> = self.cluster.ids().into_iter().filter(|id| *id != not_at).collect();
        let mut last = "nobody to ask".to_owned();
        let granted = wait_for(GRANTED_WITHIN, || {
            (self.meanwhile)();
            let address = self.cluster.node(*others.get(self.dice.index(others.len()))?).api_address;
            match Conn::open(address).and_then(|mut conn| conn.call(&bytes, within)) {
                Ok(answer) if answer.status == 200 => return Some(answer),
                Ok(answer) if method == "DELETE" && answer.code() == "unknown_node" => return Some(answer),
                Ok(answer) => last = answer.text,
                Err(error) => last = error.to_string(),
            }
            None
        });
        granted.ok_or_else(|| io::Error::other(format!("{method} {path}: {last}")))
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
