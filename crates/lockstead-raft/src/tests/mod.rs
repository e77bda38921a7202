//! Nodes in one process, over real sockets and real files.

mod cluster;
mod leadership;
mod links;
mod requests;
