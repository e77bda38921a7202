//! What a node says of itself and of its cluster.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::clock::now;
use crate::http::{Answer, Conn, request};

/// A node's view of the cluster at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The node that answered.
    pub node: u64,
    /// The term that it is in.
    pub term: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
    /// The log id of the membership in force there.
    pub membership: Option<String>,
    /// Who has a vote.
    pub voters: BTreeSet<u64>,
    /// Who is a member without one.
    pub learners: BTreeSet<u64>,
}

/// Asks once, on a connection of its own.
///
/// # Errors
/// When there is no connection, or no whole answer in time.
pub fn ask(address: SocketAddr, path: &str, within: Duration) -> io::Result<Answer> {
    let begin = now();
    let mut conn = Conn::open(address)?;
    let left = within.saturating_sub(begin.elapsed());
    let mut answer = conn.call(&request("GET", path, None), left)?;
    answer.sent = begin;
    Ok(answer)
}

/// The view of the node at an address; `None` if it does not answer in time.
pub fn view_of(address: SocketAddr, within: Duration) -> Option<View> {
    View::read(&ask(address, "/v1/admin/cluster", within).ok()?)
}

impl View {
    /// The view that an answer to `GET /v1/admin/cluster` describes.
    pub fn read(answer: &Answer) -> Option<Self> {
        let body = &answer.body;
        let members = body["members"].as_array()?;
        let of = |roles: &[&str]| {
            let theirs =
                members.iter().filter(|member| member["role"].as_str().is_some_and(|role| roles.contains(&role)));
            theirs.filter_map(|member| member["id"].as_u64()).collect()
        };
        Some(Self {
            node: body["node_id"].as_u64()?,
            term: body["term"].as_u64()?,
            leader: body["leader"].as_u64(),
            membership: body["membership"].as_str().map(str::to_owned),
            voters: of(&["leader", "follower"]),
            learners: of(&["learner"]),
        })
    }
}

/// Whether the node is a voter that has caught up and knows a leader.
pub fn is_ready(address: SocketAddr, within: Duration) -> bool {
    ask(address, "/readyz", within).is_ok_and(|answer| answer.status == 200)
}
