//! What a node counts. No label ever holds a name, a token or an owner.

use std::time::Duration;

use lockstead_core::{Answer, Outcome};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::compaction_metrics::CompactionMetrics;
use crate::store::StoreMetrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: &'static str,
}

/// The counters of a node's offices and its log. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaMetrics {
    grants: Counter,
    refusals: Family<Code, Counter>,
    wait_seconds: Histogram,
    pub(crate) waiting: Gauge,
    locks_max: Gauge,
    pub(crate) expiries: Counter,
    pub(crate) give_backs: Counter,
    pub(crate) offices: Counter,
    pub(crate) leader_changes: Counter,
    pub(crate) commit_seconds: Histogram,
    pub(crate) batch_records: Histogram,
    pub(crate) store: StoreMetrics,
    pub(crate) compaction: CompactionMetrics,
}

impl ReplicaMetrics {
    pub(crate) fn new(locks_max: u64) -> Self {
        let most = Gauge::default();
        most.set(i64::try_from(locks_max).unwrap_or(i64::MAX));
        Self {
            grants: Counter::default(),
            refusals: Family::default(),
            wait_seconds: Histogram::new(exponential_buckets(0.001, 4.0, 10)),
            waiting: Gauge::default(),
            locks_max: most,
            expiries: Counter::default(),
            give_backs: Counter::default(),
            offices: Counter::default(),
            leader_changes: Counter::default(),
            commit_seconds: Histogram::new(exponential_buckets(0.000_1, 2.0, 16)),
            batch_records: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            store: StoreMetrics::new(),
            compaction: CompactionMetrics::default(),
        }
    }

    /// Counts an answer that this node decided as leader.
    pub(crate) fn count(&self, answer: &Answer) {
        let code = match &answer.outcome {
            Outcome::Granted(_) => {
                self.grants.inc();
                self.wait_seconds.observe(Duration::from_millis(answer.waited_ms).as_secs_f64());
                return;
            }
            Outcome::GaveBack => {
                self.give_backs.inc();
                return;
            }
            Outcome::Held(_) => "held",
            Outcome::LimitExceeded { .. } => "limit_exceeded",
            Outcome::RequestIdReused => "request_id_reused",
            Outcome::TooLarge => "too_large",
            Outcome::NotHolder => "not_holder",
            Outcome::Released | Outcome::Renewed(_) | Outcome::Got(_) | Outcome::NotHeld => return,
        };
        self.refusals.get_or_create(&Code { code }).inc();
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("grants", "Locks granted, renewed and repeated grants included", self.grants.clone());
        registry.register("refusals", "Requests refused, by code", self.refusals.clone());
        registry.register_with_unit(
            "wait",
            "Time from the arrival of an acquire at the leader until its grant was decided",
            Unit::Seconds,
            self.wait_seconds.clone(),
        );
        registry.register("waiting", "Requests that wait for a lock on this leader", self.waiting.clone());
        let text = "The most locks that this node as leader lets be held at once";
        registry.register("locks_max", text, self.locks_max.clone());
        registry.register("expiries", "Holds dropped past their deadline", self.expiries.clone());
        registry.register("give_backs", "Give-backs decided", self.give_backs.clone());
        registry.register("offices", "Terms in which this node led", self.offices.clone());
        registry.register("leader_changes", "Changes of leader seen by this node", self.leader_changes.clone());
        registry.register_with_unit(
            "commit",
            "Time from proposing a batch until it was applied",
            Unit::Seconds,
            self.commit_seconds.clone(),
        );
        registry.register("batch_records", "Records per batch", self.batch_records.clone());
        registry.register_with_unit(
            "log_sync",
            "Time of one write and sync of the log's journal",
            Unit::Seconds,
            self.store.sync_seconds.clone(),
        );
        registry.register("log_group_size", "Writes made durable by one sync", self.store.group_size.clone());
        self.compaction.register(registry);
    }
}
