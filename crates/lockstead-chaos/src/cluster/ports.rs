//! Loopback ports for clusters.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Below the range that Linux takes the ports of outgoing connections from: no client's socket can sit on the port of a
/// node that is about to be started again, and no connect to a dead node can meet itself.
const FIRST: u16 = 17_000;
const LAST: u16 = 31_000;
/// How far apart processes begin their search that were started one after the other: what one gives out, no other gives
/// out before a cluster had time to listen on it.
const STRIDE: u32 = 256;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// An address that nobody listens on. None is given out twice by one process, unless it takes 14,000, nor by two that
/// take up to 256 each, unless some 50 processes were started between them.
pub fn free_address() -> SocketAddr {
    let start = std::process::id().wrapping_mul(STRIDE) % u32::from(LAST - FIRST);
    let start = u16::try_from(start).unwrap_or_default();
    loop {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (LAST - FIRST);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + offset));
        if is_free(address) {
            return address;
        }
    }
}

/// Whether nobody listens on an address of IPv4.
///
/// The socket that tries it does not listen: a process that is forked meanwhile keeps it until it executes its program,
/// and beside one that listens nobody else could.
pub fn is_free(address: SocketAddr) -> bool {
    let tried = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).and_then(|socket| {
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)
    });
    tried.is_ok()
}
