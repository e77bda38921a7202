//! Loopback ports for clusters.

pub(crate) use lockstead_chaos::cluster::ports::free_address;
