//! Clusters of real processes, faults done to them, and clients that see what users see.
//!
//! Everything is blocking: a client is a thread, so that what a test does stands in the order in which it happens.

pub(crate) mod api;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod gather;
pub(crate) mod history;
pub(crate) mod http;
pub(crate) mod locker;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod node;
pub(crate) mod ports;
pub(crate) mod proxy;
pub(crate) mod sampler;
pub(crate) mod scale;
