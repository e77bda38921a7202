//! A cluster of real processes on loopback, with a proxy on each link that is to be disturbed.

pub mod alone;
pub mod node;
pub mod ports;
pub mod proxy;
pub mod view;

use std::collections::BTreeMap;
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
            let launch = Launch {
                binary: self.binary.clone(),
                args: self.args_of(*id, &addresses, &links.peers),
                env: self.env.clone(),
                descriptors_max: self.descriptors_max.get(id).copied(),
            };
            (*id, (own.api, launch))
        };
        let nodes = addresses.iter().map(planned).collect();
        Ok(Layout { nodes, links })
    }

    /// Starts all nodes, and does not wait for them.
    ///
    /// # Errors
    /// When there is no such binary, or no place for the output.
    pub fn start(&self) -> io::Result<Cluster> {
        let Layout { nodes: planned, links } = self.lay_out()?;
        let mut nodes = BTreeMap::new();
        for (id, (api, launch)) in planned {
            let mut node = Node::new(id, api, &self.home, launch);
            node.start()?;
            nodes.insert(id, node);
        }
        Ok(Cluster { nodes, links })
    }

    fn args_of(
        &self,
        id: u64,
        addresses: &BTreeMap<u64, Addresses>,
        links: &BTreeMap<(u64, u64), Arc<Proxy>>,
    ) -> Vec<String> {
        let Addresses { api, peer } = addresses[&id];
        let mut args: Vec<String> = vec!["serve".into(), "--node-id".into(), id.to_string()];
        args.extend(["--listen".into(), api.to_string(), "--peer-listen".into(), peer.to_string()]);
        if id == 1 {
            args.push("--bootstrap".into());
            args.extend(self.founder_args.iter().cloned());
        }
        let others = addresses.iter().filter(|(other, _)| **other != id);
        let others: Vec<String> = others.map(|(_, other)| other.api.to_string()).collect();
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
    nodes: BTreeMap<u64, Node>,
    links: ProxiedLinks,
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

    /// The proxy on the link by which `from` calls `to`.
    ///
    /// # Panics
    /// When there is none.
    pub fn peer_link(&self, from: u64, to: u64) -> &Arc<Proxy> {
        &self.links.peers[&(from, to)]
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

    /// Waits until every node is a voter and knows the leader; whether that came true in time.
    pub fn wait_until_ready(&self, within: Duration) -> bool {
        let all_ready = || self.nodes.values().all(|node| self.is_ready(node)).then_some(());
        wait_for(within, all_ready).is_some()
    }

    fn is_ready(&self, node: &Node) -> bool {
        is_ready(node.api_address, PATIENCE)
            && view_of(node.api_address, PATIENCE).is_some_and(|view| view.voters == self.nodes.len())
    }
}
