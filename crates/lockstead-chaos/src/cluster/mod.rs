//! A cluster of real processes on loopback, with a proxy on each link that is to be disturbed.

mod growing;
pub mod node;
pub mod ports;
pub mod proxy;
pub mod turn;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{secs, wait_for};
use node::{Launch, Node};
use ports::free_address;
use proxy::Proxy;
use view::{is_ready, view_of};

/// How long one question about readiness may take.
const PATIENCE: Duration = secs(1);

/// Whether there is a proxy on a kind of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// There is none.
    Direct,
    /// There is one on each.
    Proxied,
}

/// How a cluster is to be.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many nodes it has, numbered from 1. Node 1 founds it.
    pub nodes: u64,
    /// The binary of all nodes.
    pub binary: PathBuf,
    /// Where data and output of the nodes go.
    pub home: PathBuf,
    /// The links from each node to each other, one for each direction of calling.
    pub peers: Links,
    /// The link from clients to each node.
    pub clients: Links,
    /// More options for each node.
    pub args: Vec<String>,
    /// More options for the first node.
    pub founder_args: Vec<String>,
    /// What the environment of each node has on top of ours.
    pub env: Vec<(String, String)>,
    /// How many files and sockets a node may open.
    pub descriptors_max: BTreeMap<u64, u32>,
}

impl Setup {
    /// A cluster without proxies.
    pub fn new(nodes: u64, binary: PathBuf, home: PathBuf) -> Self {
        Self {
            nodes,
            binary,
            home,
            peers: Links::Direct,
            clients: Links::Direct,
            args: Vec::new(),
            founder_args: Vec::new(),
            env: Vec::new(),
            descriptors_max: BTreeMap::new(),
        }
    }

    /// Gives every node its addresses and its command, and puts the proxies up. Nothing is started.
    ///
    /// # Errors
    /// When somebody else takes a port in the same moment.
    pub fn lay_out(&self) -> io::Result<Layout> {
        let addresses: BTreeMap<u64, Addresses> = (1..=self.nodes).map(|id| (id, Addresses::free())).collect();
        let mut links = ProxiedLinks::default();
        if self.peers == Links::Proxied {
            let pairs = addresses.keys().flat_map(|from| addresses.keys().map(move |to| (*from, *to)));
            for (from, to) in pairs.filter(|(from, to)| from != to) {
                links.peers.insert((from, to), Arc::new(Proxy::to(addresses[&to].peer)?));
            }
        }
        if self.clients == Links::Proxied {
            for (id, addresses) in &addresses {
                links.clients.insert(*id, Arc::new(Proxy::to(addresses.api)?));
            }
        }
        let planned = |(id, own): (&u64, &Addresses)| {
            let args = [self.args_of(*id, *own, &self.entry_of(*id, &addresses)), links.routes_of(*id)].concat();
            (*id, (own.api, self.launch(*id, args)))
        };
        let nodes = addresses.iter().map(planned).collect();
        Ok(Layout { nodes, links })
    }

    /// Starts all nodes, and does not wait for them.
    ///
    /// # Errors
    /// When there is no such binary, or no place for the output.
    pub fn start(&self) -> io::Result<Cluster> {
        let mut cluster = Cluster::nobody(self.clone());
        let addresses: BTreeMap<u64, Addresses> = (1..=self.nodes).map(|id| (id, cluster.addresses_of(id))).collect();
        for id in addresses.keys() {
            cluster.start_new(&self.entry_of(*id, &addresses))?;
        }
        Ok(cluster)
    }

    fn launch(&self, id: u64, args: Vec<String>) -> Launch {
        let descriptors_max = self.descriptors_max.get(&id).copied();
        Launch { binary: self.binary.clone(), args, env: self.env.clone(), descriptors_max }
    }

    /// All but its links.
    fn args_of(&self, id: u64, Addresses { api, peer }: Addresses, entry: &[String]) -> Vec<String> {
        let mut args: Vec<String> = vec!["serve".into(), "--node-id".into(), id.to_string()];
        args.extend(["--listen".into(), api.to_string(), "--peer-listen".into(), peer.to_string()]);
        args.extend(entry.iter().chain(&self.args).cloned());
        args
    }

    /// How one of the first nodes comes to the cluster.
    fn entry_of(&self, id: u64, addresses: &BTreeMap<u64, Addresses>) -> Vec<String> {
        let mut args = Vec::new();
        if id == 1 {
            args.push("--bootstrap".to_owned());
            args.extend(self.founder_args.iter().cloned());
        }
        let others = addresses.iter().filter(|(other, _)| **other != id);
        let others: Vec<String> = others.map(|(_, other)| other.api.to_string()).collect();
        if !others.is_empty() {
            args.extend(["--join".to_owned(), others.join(",")]);
        }
        args
    }
}

#[derive(Clone, Copy, Debug)]
struct Addresses {
    api: SocketAddr,
    peer: SocketAddr,
}

impl Addresses {
    fn free() -> Self {
        Self { api: free_address(), peer: free_address() }
    }
}

/// The proxies of a cluster, where it has some.
#[derive(Debug, Default)]
pub struct ProxiedLinks {
    /// By which node calls and which is called.
    pub peers: BTreeMap<(u64, u64), Arc<Proxy>>,
    /// By which node clients call.
    pub clients: BTreeMap<u64, Arc<Proxy>>,
}

impl ProxiedLinks {
    /// The options by which a node calls others through its proxies.
    fn routes_of(&self, id: u64) -> Vec<String> {
        let own = self.peers.iter().filter(|((from, _), _)| *from == id);
        own.flat_map(|((_, to), proxy)| ["--peer-route".to_owned(), format!("{to}={}", proxy.address())]).collect()
    }

    /// The proxies on all links from and to a node.
    pub fn of(&self, id: u64) -> impl Iterator<Item = &Arc<Proxy>> {
        self.peers.iter().filter(move |((from, to), _)| *from == id || *to == id).map(|(_, proxy)| proxy)
    }
}

/// A cluster that can be started.
#[derive(Debug)]
pub struct Layout {
    /// Where each node will serve clients, and its command.
    pub nodes: BTreeMap<u64, (SocketAddr, Launch)>,
    /// The proxies; they pass everything on by now.
    pub links: ProxiedLinks,
}

/// A running cluster. Its processes end with it.
#[derive(Debug)]
pub struct Cluster {
    setup: Setup,
    nodes: BTreeMap<u64, Node>,
    links: ProxiedLinks,
    /// Of the nodes, and of some that may come.
    addresses: BTreeMap<u64, Addresses>,
    /// The commands of the nodes, without their links.
    commands: BTreeMap<u64, Vec<String>>,
    unfinished: BTreeSet<u64>,
    next_id: u64,
}

impl Cluster {
    /// A node.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn node(&self, id: u64) -> &Node {
        &self.nodes[&id]
    }

    /// A node, to do something to it.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn node_mut(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of the cluster")
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// The numbers of all nodes.
    pub fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// The proxy on the link by which `from` calls `to`, if there is one.
    pub fn peer_link(&self, from: u64, to: u64) -> Option<&Arc<Proxy>> {
        self.links.peers.get(&(from, to))
    }

    /// The proxy on the clients' link to a node, if there is one.
    pub fn client_link(&self, id: u64) -> Option<&Arc<Proxy>> {
        self.links.clients.get(&id)
    }

    /// Where clients call a node: at the proxy on their link, if there is one.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn client_address(&self, id: u64) -> SocketAddr {
        self.client_link(id).map_or(self.nodes[&id].api_address, |link| link.address())
    }

    /// Waits until every node is a voter, knows the leader, and knows of nobody else; whether that came true in time.
    pub fn wait_until_ready(&self, within: Duration) -> bool {
        let all_ready = || self.nodes.values().all(|node| self.is_ready(node)).then_some(());
        wait_for(within, all_ready).is_some()
    }

    fn is_ready(&self, node: &Node) -> bool {
        is_ready(node.api_address, PATIENCE)
            && view_of(node.api_address, PATIENCE)
                .is_some_and(|view| view.voters.iter().eq(self.nodes.keys()) && view.learners.is_empty())
    }
}
