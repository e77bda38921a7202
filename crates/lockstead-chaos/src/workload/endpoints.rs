//! The nodes as clients see them.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::cluster::proxy::Proxy;
use crate::dice::Dice;

/// A node as clients see it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its number in the cluster.
    pub node: u64,
    /// Where it is called.
    pub address: SocketAddr,
    /// The proxy at that address, if it is one of ours.
    pub link: Option<Arc<Proxy>>,
}

/// All nodes that clients know of, by their numbers. There is always one.
#[derive(Debug)]
pub struct Endpoints(RwLock<Vec<Arc<Endpoint>>>);

impl Endpoints {
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Self {
        let mut known: Vec<Arc<Endpoint>> = endpoints.into_iter().map(Arc::new).collect();
        known.sort_by_key(|endpoint| endpoint.node);
        Self(RwLock::new(known))
    }

    /// Tells clients of a node.
    pub fn learn(&self, endpoint: Endpoint) {
        let mut known = self.write();
        known.push(Arc::new(endpoint));
        known.sort_by_key(|endpoint| endpoint.node);
    }

    /// Tells clients that a node is gone, unless it is the last. What is under way to it goes on.
    pub fn forget(&self, node: u64) {
        let mut known = self.write();
        if known.len() > 1 {
            known.retain(|endpoint| endpoint.node != node);
        }
    }

    /// Any of them.
    pub(super) fn any(&self, dice: &mut Dice) -> Arc<Endpoint> {
        Arc::clone(dice.pick(&self.read()))
    }

    /// This one; if clients do not know of it any more, the next.
    pub(super) fn at(&self, node: u64) -> Arc<Endpoint> {
        self.first(|endpoint| endpoint.node >= node)
    }

    /// The one after this one, in a round.
    pub(super) fn after(&self, node: u64) -> Arc<Endpoint> {
        self.first(|endpoint| endpoint.node > node)
    }

    /// Whether clients know of this node.
    pub(super) fn knows(&self, node: u64) -> bool {
        self.read().iter().any(|endpoint| endpoint.node == node)
    }

    fn first(&self, is_it: impl Fn(&Endpoint) -> bool) -> Arc<Endpoint> {
        let known = self.read();
        Arc::clone(known.iter().find(|endpoint| is_it(endpoint)).unwrap_or(&known[0]))
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Endpoint>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<Endpoint>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(node: u64) -> Endpoint {
        Endpoint { node, address: ([127, 0, 0, 1], 1).into(), link: None }
    }

    #[test]
    fn whoever_leaves_a_node_goes_round_those_that_are_there() {
        let endpoints = Endpoints::new([5, 1, 3].map(endpoint).into());
        assert_eq!([1, 3, 5].map(|node| endpoints.after(node).node), [3, 5, 1]);
        endpoints.forget(3);
        endpoints.learn(endpoint(8));
        assert_eq!([1, 3, 5, 8].map(|node| endpoints.after(node).node), [5, 5, 8, 1]);
        assert_eq!([1, 3, 9].map(|node| endpoints.at(node).node), [1, 5, 1]);
        assert!(endpoints.knows(8) && !endpoints.knows(3));
    }

    #[test]
    fn the_last_node_is_not_forgotten() {
        let endpoints = Endpoints::new(vec![endpoint(1)]);
        endpoints.forget(1);
        assert_eq!(endpoints.any(&mut Dice::new(1, 1)).node, 1);
    }
}
