//! The HTTP interface of a node.
//!
//! [`serve`] accepts connections (`serve`), drives each under its timeouts (`connection`), passes requests through one
//! service (`service`: leader and cluster headers, metrics, the log line) to the handlers: one handler, one route
//! (`locks`, `admin`, `members`, `snapshot`, `backup`, `health`, `metrics`).
//!
//! Invariants:
//! 1. What a node answered to a submitted request is turned into bytes and handed to the connection without an await in
//!    between: the time left of a hold is that of its writing.
//! 2. A connection that is lost drops the future of its request, which withdraws a waiter.
//! 3. No name, token or owner reaches a log line or a metric's label.

mod admin;
mod answer;
mod backup;
mod body;
mod cluster_metrics;
mod config;
mod connection;
mod connections;
mod health;
mod leader_headers;
mod locks;
mod members;
mod metrics;
mod node;
mod route;
mod serve;
mod service;
mod snapshot;

pub use config::ServerConfig;
pub use node::Node;
pub use serve::serve;
