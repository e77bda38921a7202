//! A cluster of real processes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstead_chaos::cluster::proxy::Proxy;
use lockstead_chaos::cluster::turn::Turn;
use lockstead_chaos::cluster::{self, Layout, Links, ProxiedLinks};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::api::Api;
use super::clock::{eventually, now, secs};
use super::locker::insist;
use super::node::{LOCKSTEAD, Node};
use super::ports::free_address;

const START_WITHIN: Duration = secs(30);
const LOG_LINES_SHOWN: usize = 60;

/// Where all take their turns.
pub(crate) const TURNS: &str = env!("CARGO_TARGET_TMPDIR");

/// How a cluster is to be.
#[derive(Debug)]
pub(crate) struct Setup {
    shape: cluster::Setup,
    turn: fn(&Path) -> io::Result<Turn>,
}

impl Setup {
    pub(crate) fn of(nodes: u64) -> Self {
        Self { shape: cluster::Setup::new(nodes, LOCKSTEAD.into(), PathBuf::new()), turn: Turn::beside_others }
    }

    /// With no other cluster of a test beside it.
    pub(crate) fn alone(self) -> Self {
        Self { turn: Turn::alone, ..self }
    }

    /// With a proxy on each link from a node to its peer.
    pub(crate) fn with_proxied_peers(self) -> Self {
        Self { shape: cluster::Setup { peers: Links::Proxied, ..self.shape }, ..self }
    }

    /// With a proxy on each link: from a node to its peer, and from clients to a node.
    pub(crate) fn through_proxies(self) -> Self {
        Self { shape: cluster::Setup { peers: Links::Proxied, clients: Links::Proxied, ..self.shape }, ..self }
    }

    /// With more options for each node.
    pub(crate) fn with_args(self, args: &[&str]) -> Self {
        Self {
            shape: cluster::Setup { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..self.shape },
            ..self
        }
    }

    /// With more options for the first node.
    pub(crate) fn with_founder_args(self, args: &[&str]) -> Self {
        Self {
            shape: cluster::Setup { founder_args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..self.shape },
            ..self
        }
    }

    /// With a bound on the files and sockets of one node.
    pub(crate) fn with_descriptors(self, id: u64, descriptors_max: u32) -> Self {
        Self { shape: cluster::Setup { descriptors_max: [(id, descriptors_max)].into(), ..self.shape }, ..self }
    }

    /// Starts the cluster and waits until every node is a voter that knows the leader.
    pub(crate) fn start(self) -> Cluster {
        let turn = (self.turn)(Path::new(TURNS)).expect("a lock file");
        let home = TempDir::new().expect("a directory");
        let Layout { nodes, links } = self.shape.lay_out().expect("free ports");
        let started = nodes.into_iter().map(|(id, (api, launch))| {
            let mut node = Node::launched_by(id, api, home.path(), launch);
            node.start();
            (id, node)
        });
        let nodes = started.collect();
        let cluster = Cluster { nodes, links, args: self.shape.args, home, _turn: turn };
        cluster.wait_until_ready();
        cluster
    }
}

/// A running cluster. Everything ends with it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(super) nodes: BTreeMap<u64, Node>,
    links: ProxiedLinks,
    /// Further options of each node.
    pub(super) args: Vec<String>,
    pub(super) home: TempDir,
    _turn: Turn,
}

impl Cluster {
    pub(crate) fn start(nodes: u64) -> Self {
        Setup::of(nodes).start()
    }

    /// With a proxy on each link between nodes, and from clients to each node.
    pub(crate) fn through_proxies(nodes: u64) -> Self {
        Setup::of(nodes).through_proxies().start()
    }

    /// A further node on an empty directory joins the others; returns its id once it is a voter.
    pub(crate) fn add_node(&mut self) -> u64 {
        let id = self.start_joiner();
        self.wait_until_ready();
        id
    }

    /// A further node on an empty directory begins to join the others; returns its id.
    pub(crate) fn start_joiner(&mut self) -> u64 {
        let id = self.ids().last().map_or(1, |last| last + 1);
        let (api, peer) = (free_address(), free_address());
        let members: Vec<String> = self.nodes.values().map(|node| node.api_address.to_string()).collect();
        let mut args: Vec<String> = vec!["serve".into(), "--node-id".into(), id.to_string()];
        args.extend(["--listen".into(), api.to_string(), "--peer-listen".into(), peer.to_string()]);
        args.extend(["--join".into(), members.join(",")]);
        args.extend(self.args.iter().cloned());
        let mut node = Node::new(id, api, self.home.path(), args);
        node.start();
        self.nodes.insert(id, node);
        id
    }

    /// Restarts whoever leads until `id` does: a node that is told to stop hands over to a voter that has all it has.
    pub(crate) fn make_leader(&mut self, id: u64) {
        for _ in 0..20 {
            let leader = self.leader();
            if leader == id {
                return;
            }
            self.node(leader).signal(Signal::TERM);
            self.node(leader).wait_for_exit(secs(20));
            self.node(leader).start();
            self.wait_until_ready();
        }
        panic!("node {id} never leads");
    }

    pub(crate) fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of the cluster")
    }

    /// Does something to each of some nodes, in the order given.
    pub(crate) fn each(&mut self, ids: &[u64], mut what: impl FnMut(&mut Node)) {
        for id in ids {
            what(self.node(*id));
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn others(&self, id: u64) -> Vec<u64> {
        self.ids().into_iter().filter(|other| *other != id).collect()
    }

    /// Where clients call a node: through the proxy on their link to it, if there is one.
    pub(crate) fn api(&self, id: u64) -> Api {
        self.links.clients.get(&id).map_or(self.nodes[&id].api(), |link| Api::at(link.address()))
    }

    pub(crate) fn apis(&self) -> Vec<Api> {
        self.nodes.keys().map(|id| self.api(*id)).collect()
    }

    pub(crate) fn apis_without(&self, id: u64) -> Vec<Api> {
        self.others(id).into_iter().map(|other| self.api(other)).collect()
    }

    pub(crate) fn wait_until_ready(&self) {
        eventually("every node is a voter and knows the leader", START_WITHIN, || {
            self.nodes.values().all(|node| node.api().is_ready() && self.sees_all_voters(node)).then_some(())
        });
    }

    fn sees_all_voters(&self, node: &Node) -> bool {
        let Ok(view) = node.api().patient_for(secs(1)).cluster() else { return false };
        let members = view.body["members"].as_array().cloned().unwrap_or_default();
        members.len() == self.nodes.len()
            && members.iter().all(|member| member["role"] == "leader" || member["role"] == "follower")
            // While the last of them gets its vote, the others still have to agree among themselves as well.
            && view.body["failures_tolerated"] == (members.len() - 1) / 2
    }

    /// Who leads, as the nodes that are given say: the leader of the highest term, if it says so itself.
    pub(crate) fn leader_among(&self, ids: &[u64]) -> u64 {
        eventually("a node leads", START_WITHIN, || {
            let views = ids.iter().filter_map(|id| self.api(*id).patient_for(secs(1)).cluster().ok());
            let newest = views.max_by_key(|view| view.number("term"))?;
            let leader = newest.body["leader"].as_u64().filter(|leader| ids.contains(leader))?;
            let own = self.api(leader).patient_for(secs(1)).cluster().ok()?;
            (own.body["leader"].as_u64() == Some(leader) && own.number("term") == newest.number("term"))
                .then_some(leader)
        })
    }

    pub(crate) fn leader(&self) -> u64 {
        self.leader_among(&self.ids())
    }

    /// Who leads, and the others, which have to be `N`.
    pub(crate) fn leader_and_others<const N: usize>(&self) -> (u64, [u64; N]) {
        self.leader_and_others_among(&self.ids())
    }

    /// Who leads of the nodes that are given, and the others of them, which have to be `N`.
    pub(crate) fn leader_and_others_among<const N: usize>(&self, ids: &[u64]) -> (u64, [u64; N]) {
        let leader = self.leader_among(ids);
        let others: Vec<u64> = ids.iter().copied().filter(|id| *id != leader).collect();
        (leader, others.try_into().expect("as many others as are named"))
    }

    /// The moment at which a leader with a quorum answered, asked from now on. What lies between a fault and this
    /// moment is more than the time without such a leader, by what one question takes.
    pub(crate) fn when_led_again(&self, ids: &[u64]) -> Instant {
        let apis: Vec<Api> = ids.iter().map(|id| self.api(*id).patient_for(secs(1))).collect();
        insist(&apis, START_WITHIN, |api| api.get("nobody-ever-holds-this")).must_be(404, "not_held").received
    }

    /// How long there was no leader with a quorum, if none was there from `fault` on.
    pub(crate) fn leaderless_since(&self, fault: Instant, ids: &[u64]) -> Duration {
        self.when_led_again(ids).saturating_duration_since(fault)
    }

    pub(crate) fn kill_and_restart(&mut self, id: u64) -> Instant {
        let killed = now();
        self.node(id).kill();
        self.node(id).start();
        killed
    }

    pub(crate) fn kill_all(&mut self) {
        self.nodes.values_mut().for_each(Node::kill);
    }

    pub(crate) fn start_all(&mut self) {
        self.nodes.values_mut().for_each(Node::start);
    }

    /// The proxy on the link by which `from` calls `to`.
    pub(crate) fn link(&self, from: u64, to: u64) -> &Arc<Proxy> {
        &self.links.peers[&(from, to)]
    }

    /// Every link from and to a node, but those of clients.
    pub(crate) fn links_of(&self, id: u64) -> impl Iterator<Item = &Arc<Proxy>> {
        self.links.of(id)
    }

    /// How many requests wait for locks.
    pub(crate) fn waiting(&self) -> usize {
        self.nodes.values().filter_map(|node| node.api().waiting()).sum()
    }

    #[track_caller]
    pub(crate) fn wait_until_waiting(&self, waiters: usize) {
        eventually(&format!("{waiters} requests wait"), secs(20), || (self.waiting() == waiters).then_some(()));
    }

    /// The cluster still does its job through every node.
    #[track_caller]
    pub(crate) fn must_work(&self) {
        for (id, node) in &self.nodes {
            let body = json!({"name": format!("works through {id}"), "ttl_ms": 2_000});
            insist(&[node.api()], secs(15), |api| api.acquire(&body)).must_be_ok();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for node in self.nodes.values() {
            let output = node.output();
            let lines: Vec<&str> = output.lines().collect();
            let shown = lines.len().saturating_sub(LOG_LINES_SHOWN);
            eprintln!("--- node {}, the last of {} lines\n{}", node.id, lines.len(), lines[shown..].join("\n"));
        }
    }
}
