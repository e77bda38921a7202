//! Whether requests that come to this node are decided.
//!
//! A follower may hear a leader that no quorum follows, and one that it cannot reach itself. So each node asks for a
//! read now and then, on the way that its clients' requests take. A leader with an open office need not: its quorum
//! answers tell.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockstead_core::{Get, LockKey, LockName, Op};
use tokio::time::{Instant, sleep};

use crate::platform::Platform;
use crate::router::Router;

/// How soon to ask again after a request that was not decided.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// When a request of this node was decided last. All clones are one.
#[derive(Clone, Default)]
pub(crate) struct Reach(Arc<Mutex<Option<Instant>>>);

impl Reach {
    /// Whether a request that was sent within this time was decided.
    pub(crate) fn is_proven(&self, within: Duration) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|sent| sent.elapsed() <= within)
    }

    fn prove(&self, sent: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent);
    }

    /// Asks, once in each `every`, until it is dropped.
    pub(crate) async fn keep_asking<P: Platform>(self, router: Router<P>, every: Duration) {
        let name = LockName::parse("is anybody there").expect("a name of 16 bytes");
        let read = Op::Get(Get { lock: LockKey::in_default(&name) });
        loop {
            let sent = Instant::now();
            if router.has_office() || router.submit(read.clone(), every).await.is_ok() {
                self.prove(sent);
                sleep(every).await;
            } else {
                sleep(ASK_AGAIN).await;
            }
        }
    }
}
