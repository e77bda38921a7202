//! The open connections, bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::connection::Activity;

/// Half of the descriptors, but no more than this, are kept for the log, the peers and whatever else is opened.
const DESCRIPTORS_KEPT_MAX: u64 = 128;
/// While every connection has a request in flight: how often to look for one that is free.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);

/// The open connections.
pub(crate) struct Connections {
    epoch: Instant,
    shutdown: CancellationToken,
    slots: Arc<Semaphore>,
    open: Mutex<Open>,
    gauge: Gauge,
}

#[derive(Default)]
struct Open {
    next_number: u64,
    by_number: HashMap<u64, (Arc<Activity>, CancellationToken)>,
}

/// A connection among the open ones; dropping it makes room for another.
pub(crate) struct Member {
    connections: Arc<Connections>,
    number: u64,
    pub(crate) activity: Arc<Activity>,
    pub(crate) close: CancellationToken,
    _slot: OwnedSemaphorePermit,
}

impl Connections {
    pub(crate) fn new(connections_max: usize, gauge: Gauge, shutdown: CancellationToken) -> Self {
        let slots = Arc::new(Semaphore::new(affordable(connections_max).min(Semaphore::MAX_PERMITS)));
        Self { epoch: Instant::now(), shutdown, slots, open: Mutex::default(), gauge }
    }

    /// Room for one more connection. At the bound the connection that was free for longest is closed for it.
    pub(crate) async fn slot(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
                return slot;
            }
            self.close_longest_free();
            if let Ok(Ok(slot)) = timeout(SEARCH_INTERVAL, Arc::clone(&self.slots).acquire_owned()).await {
                return slot;
            }
        }
    }

    /// Closes the connection that has been without a request for longest, if there is one.
    pub(crate) fn close_longest_free(&self) {
        let open = self.open();
        let free = open.by_number.values().filter(|(_, close)| !close.is_cancelled());
        let longest = free.filter_map(|(activity, close)| Some((activity.free_since_ms()?, close)));
        if let Some((_, close)) = longest.min_by_key(|(since_ms, _)| *since_ms) {
            close.cancel();
        }
    }

    pub(crate) fn add(self: &Arc<Self>, slot: OwnedSemaphorePermit) -> Member {
        let activity = Arc::new(Activity::new(self.epoch));
        let close = self.shutdown.child_token();
        let mut open = self.open();
        let number = open.next_number;
        open.next_number += 1;
        open.by_number.insert(number, (Arc::clone(&activity), close.clone()));
        self.gauge.inc();
        Member { connections: Arc::clone(self), number, activity, close, _slot: slot }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.connections.open().by_number.remove(&self.number);
        self.connections.gauge.dec();
    }
}

/// How many requests may wait for locks at a time: a quarter of the connections is kept for those that are answered at
/// once, so that waiters lock out neither holders nor whoever looks after the node.
pub(crate) fn waits_max(connections_max: usize) -> usize {
    let connections = affordable(connections_max);
    connections - connections.div_ceil(4).min(connections - 1)
}

/// What the limit of file descriptors allows of `connections_max`.
fn affordable(connections_max: usize) -> usize {
    let Some(descriptors) = getrlimit(Resource::Nofile).current else { return connections_max };
    let kept = (descriptors / 2).min(DESCRIPTORS_KEPT_MAX);
    let left = usize::try_from(descriptors - kept).unwrap_or(usize::MAX);
    connections_max.min(left).max(1)
}
