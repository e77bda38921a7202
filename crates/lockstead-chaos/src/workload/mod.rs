//! Clients that go about their work: what they do, and how they note what they were told.

mod answers;
mod client;
mod endpoints;
mod lanes;
mod moves;
mod recorder;
mod register;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock::{as_us, now};
use crate::dice::Dice;
use client::Client;
pub use endpoints::{Endpoint, Endpoints};
pub use recorder::{Noted, Recorder};
use register::Registers;

/// Enough for a client, so that many fit.
const STACK_BYTES: usize = 512 * 1_024;

/// How many clients there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Those who take locks.
    pub clients: u32,
    /// Those who only look.
    pub watchers: u32,
}

/// What all clients of a run share.
#[derive(Debug)]
pub struct Ground {
    origin: Instant,
    /// What all lock names of the run begin with.
    run: String,
    seed: u64,
    crowd: Crowd,
    /// The nodes that clients know of.
    pub endpoints: Endpoints,
    stop_us: AtomicU64,
    /// What they noted.
    pub recorder: Recorder,
    registers: Registers,
}

impl Ground {
    /// A run of such a crowd whose moments count from `origin`. On a cluster that others use too, `run` keeps its
    /// names apart.
    pub fn new(
        origin: Instant,
        run: String,
        seed: u64,
        crowd: Crowd,
        endpoints: Vec<Endpoint>,
        recorder: Recorder,
    ) -> Self {
        let (endpoints, registers) = (Endpoints::new(endpoints), Registers::default());
        Self { origin, run, seed, crowd, endpoints, stop_us: AtomicU64::new(u64::MAX), recorder, registers }
    }

    fn us(&self, moment: Instant) -> u64 {
        as_us(moment.saturating_duration_since(self.origin))
    }

    /// The clients begin nothing new from now on, and leave calls that take longer than `grace` more.
    pub fn stop(&self, grace: Duration) {
        self.stop_us.store(self.us(now() + grace), Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop_us.load(Ordering::Relaxed) != u64::MAX
    }

    /// Whether calls are to be left by now.
    fn is_over(&self) -> bool {
        self.us(now()) >= self.stop_us.load(Ordering::Relaxed)
    }
}

/// Starts the clients, each with its own dice from the seed. They end after [`Ground::stop`].
///
/// # Panics
/// When the machine has no room for their threads.
pub fn start(ground: &Arc<Ground>) -> Vec<JoinHandle<()>> {
    let start_one = |number: u32| {
        let ground = Arc::clone(ground);
        let dice = Dice::new(ground.seed, 1_000 + u64::from(number));
        let work = move || Client::new(number, dice, ground).work();
        thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread for a client")
    };
    (0..ground.crowd.clients + ground.crowd.watchers).map(start_one).collect()
}
