//! Which node the next try goes to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::endpoint::Endpoint;

/// How long a leader that could not be used is not taken from a header again. Any node forwards, so nothing is lost; a
/// leader whose advertised address is out of this client's reach would else cost a failed try per call.
const AVOID: Duration = Duration::from_secs(5);

/// The configured endpoints in a ring, and the leader as the nodes last named it.
#[derive(Debug)]
pub(crate) struct Router {
    endpoints: Vec<Endpoint>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    position: usize,
    leader: Option<Endpoint>,
    avoided: Option<(Endpoint, Instant)>,
    /// The first cluster that a node named.
    cluster: Option<String>,
}

impl Router {
    pub(crate) fn new(endpoints: Vec<Endpoint>) -> Self {
        Self { endpoints, state: Mutex::default() }
    }

    /// The leader if it is known, else the endpoint that last did not fail.
    pub(crate) fn pick(&self) -> Option<Endpoint> {
        let state = self.state();
        state.leader.clone().or_else(|| self.endpoints.get(state.position).cloned())
    }

    /// Takes in that a node named a leader.
    pub(crate) fn learn_leader(&self, leader: &Endpoint) {
        let mut state = self.state();
        let avoided = state.avoided.as_ref().is_some_and(|(who, until)| who == leader && Instant::now() < *until);
        if !avoided {
            state.leader = Some(leader.clone());
        }
    }

    /// The cluster that this client talks to, once it knows.
    pub(crate) fn cluster(&self) -> Option<String> {
        self.state().cluster.clone()
    }

    /// Takes in that a node belongs to a cluster; the cluster that this client talks to, which is the first.
    pub(crate) fn learn_cluster(&self, cluster: &str) -> String {
        self.state().cluster.get_or_insert_with(|| cluster.to_owned()).clone()
    }

    /// Takes in that a node could not serve a request: the next try goes elsewhere.
    pub(crate) fn failed(&self, endpoint: &Endpoint) {
        let mut state = self.state();
        if state.leader.as_ref() == Some(endpoint) {
            state.leader = None;
        }
        state.avoided = Some((endpoint.clone(), Instant::now() + AVOID));
        if self.endpoints.get(state.position) == Some(endpoint) {
            state.position = (state.position + 1) % self.endpoints.len();
        }
    }

    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The state is whole between any two statements, so a poisoned lock is as good as any.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script of `fail NAME` and `leader NAME` steps and says where the next try goes.
    fn check(script: &str, expected: &str) {
        let endpoint = |name: &str| format!("{name}:1").parse::<Endpoint>().unwrap();
        let router = Router::new(vec![endpoint("a"), endpoint("b"), endpoint("c")]);
        for step in script.split(", ").filter(|step| !step.is_empty()) {
            match step.split_once(' ') {
                Some(("fail", name)) => router.failed(&endpoint(name)),
                Some(("leader", name)) => router.learn_leader(&endpoint(name)),
                _ => panic!("unknown step {step}"),
            }
        }
        assert_eq!(router.pick(), Some(endpoint(expected)), "{script}");
    }

    #[test]
    fn the_first_endpoint_is_tried_first_and_the_others_follow_in_a_ring() {
        check("", "a");
        check("fail a", "b");
        check("fail a, fail b", "c");
        check("fail a, fail b, fail c", "a");
    }

    #[test]
    fn the_leader_is_followed_until_it_fails() {
        check("leader c", "c");
        check("leader z", "z");
        check("leader z, fail z", "a");
        check("leader a, fail a", "b");
    }

    #[test]
    fn a_leader_that_just_failed_is_not_believed_again_at_once() {
        check("leader z, fail z, leader z", "a");
        check("fail a, leader a", "b");
        check("leader z, fail z, leader y", "y");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_while_it_is_believed_again() {
        let endpoint: Endpoint = "z:1".parse().unwrap();
        let router = Router::new(vec!["a:1".parse().unwrap()]);
        router.failed(&endpoint);
        tokio::time::advance(AVOID).await;
        router.learn_leader(&endpoint);
        assert_eq!(router.pick(), Some(endpoint));
    }
}
