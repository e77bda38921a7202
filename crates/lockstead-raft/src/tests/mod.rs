//! Nodes in one process, over real sockets and real files.

mod cluster;
mod leadership;
mod lineages;
mod links;
mod requests;
mod snapshots;
