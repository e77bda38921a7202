//! Watches the remaining time of a lock through all nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::api::Api;
use super::clock::{as_ms, ms};
use super::gather::{client, done};

/// What a linearizable read said.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) asked: Instant,
    pub(crate) at: Instant,
    /// Fence and remaining milliseconds, unless the lock was free.
    pub(crate) holder: Option<(u64, u64)>,
}

/// A client that does nothing but ask who holds a lock.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    samples: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    pub(crate) fn of(name: &'static str, apis: Vec<Api>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let samples = client(move || {
            let mut samples = Vec::new();
            for api in apis.iter().cycle() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                samples.extend(sample(*api, name));
                std::thread::sleep(ms(20));
            }
            samples
        });
        Self { stop, samples }
    }

    pub(crate) fn stop(self) -> Samples {
        self.stop.store(true, Ordering::Relaxed);
        Samples(done(self.samples))
    }
}

fn sample(api: Api, name: &str) -> Option<Sample> {
    let answer = api.patient_for(ms(500)).get(name).ok()?;
    let holder = match answer.status {
        200 => Some((*answer.holder_fences().first()?, answer.body["holders"][0]["expires_in_ms"].as_u64()?)),
        404 => None,
        _undecided => return None,
    };
    Some(Sample { asked: answer.sent, at: answer.received, holder })
}

/// What was seen, in order.
#[derive(Debug)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    /// The remaining time of one hold, never renewed, is never more than a second and odd above its TTL, and never
    /// rises from one answer to the next by more than `rise_max` and the gap between them.
    #[track_caller]
    pub(crate) fn must_fall(&self, ttl: Duration, rise_max: Duration) {
        let held = self.0.iter().filter_map(|sample| Some((sample, sample.holder?)));
        let held: Vec<_> = held.collect();
        assert!(held.len() >= 10, "too few answers to tell: {held:?}");
        for pair in held.windows(2) {
            let ((earlier, (fence, before_ms)), (later, (next_fence, after_ms))) = (&pair[0], &pair[1]);
            assert!(*after_ms <= as_ms(ttl) && fence <= next_fence, "{pair:?}");
            let gap = later.at.duration_since(earlier.asked);
            let leaderless = if gap > ms(100) { gap } else { Duration::ZERO };
            let highest_ms = before_ms + as_ms(leaderless + rise_max);
            assert!(fence != next_fence || *after_ms <= highest_ms, "the remaining time rose: {pair:?}");
        }
    }
}
