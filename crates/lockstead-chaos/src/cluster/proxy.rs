//! A TCP proxy on loopback that can cut, stall, delay, slow down, and swallow an answer.
//!
//! It works on what TCP shows to its users. A lost packet, for instance, is a stall: the bytes come later, because TCP
//! sends them again, or never, because the connection is given up. Nothing is reordered and no byte is changed.

mod relay;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::AddAssign;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock::{secs, wait_for};
use crate::cluster::ports::free_address;

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// Connections are reset, and so are new ones.
    Cut,
    /// Connections stand, and nothing passes: packets are dropped. They pass once this ends, as TCP sends again.
    Stall,
    /// Requests pass, answers don't.
    StallAnswers,
    /// Answers pass, requests don't.
    StallRequests,
}

/// A way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Mode {
    fn stalls(self, direction: Direction) -> bool {
        match self {
            Self::Pass | Self::Cut => false,
            Self::Stall => true,
            Self::StallAnswers => direction == Direction::ToClient,
            Self::StallRequests => direction == Direction::ToServer,
        }
    }
}

/// What a proxy has done to connections and bytes since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Connections reset while they stood.
    pub resets: u64,
    /// New connections that were refused by resetting them.
    pub refused: u64,
    /// Pieces that had to wait for the end of a stall.
    pub stalled: u64,
    /// Pieces that were delayed or slowed down.
    pub slowed: u64,
}

impl Deeds {
    /// What was done since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            resets: self.resets - earlier.resets,
            refused: self.refused - earlier.refused,
            stalled: self.stalled - earlier.stalled,
            slowed: self.slowed - earlier.slowed,
        }
    }
}

impl AddAssign for Deeds {
    fn add_assign(&mut self, other: Self) {
        self.resets += other.resets;
        self.refused += other.refused;
        self.stalled += other.stalled;
        self.slowed += other.slowed;
    }
}

#[derive(Debug)]
struct State {
    mode: Mode,
    delay: Duration,
    bytes_per_s: Option<u64>,
    to_swallow: usize,
    swallowed: Vec<Vec<u8>>,
    next_number: u64,
    open: HashMap<u64, (TcpStream, TcpStream)>,
    refused: HashSet<SocketAddr>,
    deeds: Deeds,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// A proxy before one address.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy on a free address through which everything passes.
    ///
    /// # Errors
    /// When the address was taken by somebody else in the same moment.
    pub fn to(target: SocketAddr) -> io::Result<Self> {
        let address = free_address();
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared { target, state: Mutex::new(State::new()), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || relay::accept_all(&listener, &accepting));
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this happens to bytes.
    pub fn set(&self, mode: Mode) {
        let mut state = self.shared.state();
        state.mode = mode;
        if mode == Mode::Cut {
            state.reset_all();
        }
        self.shared.changed.notify_all();
    }

    /// Each piece takes so long, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// No more than so many bytes pass in a second, on each connection in each direction; `None` is no bound.
    pub fn slow(&self, bytes_per_s: Option<u64>) {
        self.shared.state().bytes_per_s = bytes_per_s;
    }

    /// Resets what stands; new connections pass.
    pub fn reset_all(&self) {
        self.shared.state().reset_all();
        self.shared.changed.notify_all();
    }

    /// What it has done so far.
    pub fn deeds(&self) -> Deeds {
        self.shared.state().deeds
    }

    /// Whether the connection that a client has made from this address was refused, so that no byte of it went on: what
    /// a client without a proxy learns from its connect. It is told once.
    pub fn was_refused(&self, from: SocketAddr) -> bool {
        self.shared.state().refused.remove(&from)
    }

    /// The next answer is taken off the wire, and its connection ends.
    pub fn swallow_next_answer(&self) {
        self.shared.state().to_swallow += 1;
    }

    /// The answer that was swallowed; `None` if none was in time.
    pub fn swallowed_answer(&self, within: Duration) -> Option<String> {
        let bytes = wait_for(within, || self.shared.state().swallowed.pop())?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopped = true;
        state.reset_all();
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the accepting thread; if it can't be reached, it is gone already.
        let _gone = TcpStream::connect_timeout(&self.address, secs(1));
    }
}

impl State {
    fn new() -> Self {
        Self {
            mode: Mode::Pass,
            delay: Duration::ZERO,
            bytes_per_s: None,
            to_swallow: 0,
            swallowed: Vec::new(),
            next_number: 0,
            open: HashMap::new(),
            refused: HashSet::new(),
            deeds: Deeds::default(),
            stopped: false,
        }
    }

    fn reset_all(&mut self) {
        for (_, (client, server)) in self.open.drain() {
            self.deeds.resets += 1;
            relay::reset(&client);
            relay::reset(&server);
        }
    }

    /// How long a piece of so many bytes takes, and how many bytes may go at a time.
    fn pace(&self) -> Pace {
        Pace { delay: self.delay, bytes_per_s: self.bytes_per_s }
    }
}

/// How fast a piece goes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    delay: Duration,
    bytes_per_s: Option<u64>,
}

impl Pace {
    fn is_full(self) -> bool {
        self.delay.is_zero() && self.bytes_per_s.is_none()
    }

    fn time_for(self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let us = self.bytes_per_s.map_or(0, |bytes_per_s| bytes.saturating_mul(1_000_000) / bytes_per_s.max(1));
        self.delay + Duration::from_micros(us)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until bytes of this direction pass; `None` once the connection was cut.
    fn wait_to_pass(&self, number: u64, direction: Direction) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state();
        let mut waited = false;
        loop {
            if !state.open.contains_key(&number) {
                return None;
            }
            if !state.mode.stalls(direction) {
                return Some(state);
            }
            if !waited {
                state.deeds.stalled += 1;
                waited = true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests;
