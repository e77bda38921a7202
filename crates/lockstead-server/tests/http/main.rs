//! The HTTP interface over real loopback sockets, on a stand-in for a node.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod connections;
mod fake_node;
mod limits;
mod members;
mod observing;
mod requests;
mod timeouts;
mod waiting;
mod wire;
