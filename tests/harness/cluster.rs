//! A cluster of real processes. One at a time on this machine.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::api::Api;
use super::clock::{eventually, now, secs};
use super::locker::insist;
use super::node::Node;
use super::ports::free_address;
use super::proxy::Proxy;

const START_WITHIN: Duration = secs(30);
const LOG_LINES_SHOWN: usize = 60;

/// The machine's only cluster, as long as this lives.
#[derive(Debug)]
pub(crate) struct Alone {
    _lock: File,
}

impl Alone {
    pub(crate) fn wait_for() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("one-cluster-at-a-time");
        let lock = File::options().create(true).truncate(false).write(true).open(path).expect("a lock file");
        lock.lock().expect("a lock on it");
        Self { _lock: lock }
    }
}

/// How a cluster is to be.
#[derive(Debug)]
pub(crate) struct Setup {
    nodes: u64,
    proxied: bool,
    args: Vec<String>,
    descriptors: Option<(u64, u32)>,
}

impl Setup {
    pub(crate) fn of(nodes: u64) -> Self {
        Self { nodes, proxied: false, args: Vec::new(), descriptors: None }
    }

    /// With a proxy on each link from a node to its peer.
    pub(crate) fn with_proxied_peers(self) -> Self {
        Self { proxied: true, ..self }
    }

    /// With more options for each node.
    pub(crate) fn with_args(self, args: &[&str]) -> Self {
        Self { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..self }
    }

    /// With a bound on the files and sockets of one node.
    pub(crate) fn with_descriptors(self, id: u64, descriptors_max: u32) -> Self {
        Self { descriptors: Some((id, descriptors_max)), ..self }
    }

    /// Starts the cluster and waits until every node is a voter that knows the leader.
    pub(crate) fn start(self) -> Cluster {
        let alone = Alone::wait_for();
        let home = TempDir::new().expect("a directory");
        let addresses: BTreeMap<u64, (SocketAddr, SocketAddr)> =
            (1..=self.nodes).map(|id| (id, (free_address(), free_address()))).collect();
        let mut links = BTreeMap::new();
        if self.proxied {
            let pairs = addresses.keys().flat_map(|from| addresses.keys().map(move |to| (*from, *to)));
            for (from, to) in pairs.filter(|(from, to)| from != to) {
                links.insert((from, to), Proxy::to(addresses[&to].1));
            }
        }
        let node = |id: &u64| {
            let mut node = Node::new(*id, addresses[id].0, home.path(), self.args_of(*id, &addresses, &links));
            if let Some((_, descriptors_max)) = self.descriptors.filter(|(limited, _)| limited == id) {
                node.limit_descriptors(descriptors_max);
            }
            node.start();
            (*id, node)
        };
        let nodes = addresses.keys().map(node).collect();
        let cluster = Cluster { nodes, links, _home: home, _alone: alone };
        cluster.wait_until_ready();
        cluster
    }

    fn args_of(
        &self,
        id: u64,
        addresses: &BTreeMap<u64, (SocketAddr, SocketAddr)>,
        links: &BTreeMap<(u64, u64), Proxy>,
    ) -> Vec<String> {
        let (api, peer) = addresses[&id];
        let mut args: Vec<String> = vec!["serve".into(), "--node-id".into(), id.to_string()];
        args.extend(["--listen".into(), api.to_string(), "--peer-listen".into(), peer.to_string()]);
        if id == 1 {
            args.push("--bootstrap".into());
        }
        let others: Vec<String> =
            addresses.iter().filter(|(other, _)| **other != id).map(|(_, (api, _))| api.to_string()).collect();
        if !others.is_empty() {
            args.extend(["--join".into(), others.join(",")]);
        }
        for ((_, to), proxy) in links.iter().filter(|((from, _), _)| *from == id) {
            args.extend(["--peer-route".into(), format!("{to}={}", proxy.address())]);
        }
        args.extend(self.args.iter().cloned());
        args
    }
}

/// A running cluster. Everything ends with it.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: BTreeMap<u64, Node>,
    links: BTreeMap<(u64, u64), Proxy>,
    _home: TempDir,
    _alone: Alone,
}

impl Cluster {
    pub(crate) fn start(nodes: u64) -> Self {
        Setup::of(nodes).start()
    }

    pub(crate) fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of the cluster")
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

    pub(crate) fn api(&self, id: u64) -> Api {
        self.nodes[&id].api()
    }

    pub(crate) fn apis(&self) -> Vec<Api> {
        self.nodes.values().map(Node::api).collect()
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

    /// The moment at which a leader with a quorum answered, asked from now on. What lies between a fault and this moment
    /// is more than the time without such a leader, by what one question takes.
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
    pub(crate) fn link(&self, from: u64, to: u64) -> &Proxy {
        &self.links[&(from, to)]
    }

    /// Every link from and to a node.
    pub(crate) fn links_of(&self, id: u64) -> impl Iterator<Item = &Proxy> {
        self.links.iter().filter(move |((from, to), _)| *from == id || *to == id).map(|(_, proxy)| proxy)
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
