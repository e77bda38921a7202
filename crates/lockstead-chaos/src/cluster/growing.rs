//! Nodes that come and go while the cluster runs.
//!
//! A node learns the proxies of its links from its command. So that nodes which run already call a new one through a
//! proxy, the addresses of some nodes to come are chosen ahead, and every node that is started knows its links to those
//! too.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::node::Node;
use super::proxy::Proxy;
use super::{Addresses, Cluster, Links, ProxiedLinks, Setup};

/// A node that runs longer than so many others take to come calls the next ones past the proxies until it is started
/// again.
const AHEAD: u64 = 16;

impl Cluster {
    pub(super) fn nobody(setup: Setup) -> Self {
        let (nodes, links) = (BTreeMap::new(), ProxiedLinks::default());
        let (addresses, commands, unfinished) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { setup, nodes, links, addresses, commands, unfinished, next_id: 1 }
    }

    /// How many nodes it was planned to have.
    pub fn planned(&self) -> usize {
        usize::try_from(self.setup.nodes).unwrap_or(usize::MAX)
    }

    /// How many nodes it has.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes whose change has begun and is not known to have come to its end.
    pub fn unfinished(&self) -> Vec<u64> {
        self.unfinished.iter().copied().collect()
    }

    /// A change of this node has begun.
    pub fn mark_unfinished(&mut self, id: u64) {
        self.unfinished.insert(id);
    }

    /// Its change has come to its end.
    pub fn mark_finished(&mut self, id: u64) {
        self.unfinished.remove(&id);
    }

    /// Where other nodes are to call a node, past any proxy.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn peer_address(&self, id: u64) -> SocketAddr {
        self.addresses[&id].peer
    }

    /// A node under an id that none ever had, with an empty directory, started with these options on top of the usual
    /// ones. Its id.
    ///
    /// # Errors
    /// When it cannot be started, or when somebody else takes a port in the same moment.
    pub fn start_new(&mut self, entry: &[String]) -> io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let own = self.addresses_of(id);
        if self.setup.clients == Links::Proxied {
            self.links.clients.insert(id, Arc::new(Proxy::to(own.api)?));
        }
        self.commands.insert(id, self.setup.args_of(id, own, entry));
        let launch = self.setup.launch(id, Vec::new());
        self.nodes.insert(id, Node::new(id, own.api, &self.setup.home, launch));
        self.start_node(id)?;
        Ok(id)
    }

    /// Starts a node that does not run, by its command and with its links to all that are there or may come.
    ///
    /// # Errors
    /// When it runs, or cannot be started.
    pub fn start_node(&mut self, id: u64) -> io::Result<()> {
        self.link(id)?;
        let args = [self.commands.get(&id).cloned().unwrap_or_default(), self.links.routes_of(id)].concat();
        let node = self.node_mut(id);
        node.set_args(args);
        node.start()
    }

    /// Ends a node for good. Its id is not given again.
    pub fn forget(&mut self, id: u64) {
        self.nodes.remove(&id);
        self.unfinished.remove(&id);
        self.addresses.remove(&id);
        self.commands.remove(&id);
        self.links.clients.remove(&id);
        self.links.peers.retain(|(from, to), _| *from != id && *to != id);
    }

    pub(super) fn addresses_of(&mut self, id: u64) -> Addresses {
        *self.addresses.entry(id).or_insert_with(Addresses::free)
    }

    /// Puts up the proxies by which a node calls others.
    fn link(&mut self, id: u64) -> io::Result<()> {
        if self.setup.peers == Links::Direct {
            return Ok(());
        }
        for coming in self.next_id..self.next_id + AHEAD {
            self.addresses_of(coming);
        }
        for (to, others) in self.addresses.iter().filter(|(to, _)| **to != id) {
            if let Entry::Vacant(link) = self.links.peers.entry((id, *to)) {
                link.insert(Arc::new(Proxy::to(others.peer)?));
            }
        }
        Ok(())
    }
}
