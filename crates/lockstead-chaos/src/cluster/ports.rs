//! Loopback ports for clusters.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range that Linux takes the ports of outgoing connections from: no client's socket can sit on the port of a
/// node that is about to be started again, and no connect to a dead node can meet itself.
const FIRST: u16 = 17_000;
const LAST: u16 = 31_000;
/// Where the search starts differs from process to process, so that two clusters seldom try the same ports.
const STARTS: u32 = 7_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// An address that nobody listens on. None is given out twice by one process, unless it takes 14,000; between processes
/// that start clusters at the same moment, nothing but chance keeps them apart.
pub fn free_address() -> SocketAddr {
    let start = u16::try_from(std::process::id() % STARTS).unwrap_or_default();
    loop {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (LAST - FIRST);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + offset));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
