//! The bounds of the HTTP interface.

use std::time::Duration;

use lockstead_core::Ttl;

/// The bounds of the HTTP interface. [`Default`] is what production runs with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The longest TTL granted, in milliseconds (86,400,000: a day). Raising it lets a dead holder block for longer.
    pub ttl_ms_max: u64,
    /// The largest request body, in bytes (64 KiB). Raising it lets each connection take more memory.
    pub body_bytes_max: usize,
    /// The most connections at once (10,000), further lowered so that the process keeps file descriptors for its log
    /// and its peers. At the bound the connection that was idle for longest makes room; while none is idle, new ones
    /// wait until one is.
    pub connections_max: usize,
    /// The most time from a connection's begin to its first complete request head, and from the first byte of a later
    /// head to its last (10 s).
    pub header_timeout: Duration,
    /// The most time from a complete request head to the last byte of its body (30 s).
    pub body_timeout: Duration,
    /// How long a connection is kept without a request, or with an answer that its client does not read (75 s).
    pub idle_timeout: Duration,
    /// How long requests in flight may go on after the shutdown began (5 s); then they are answered `outcome_unknown`.
    pub drain_grace: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            ttl_ms_max: Ttl::MAX_MS_DEFAULT,
            body_bytes_max: 64 * 1_024,
            connections_max: 10_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            drain_grace: Duration::from_secs(5),
        }
    }
}
