//! What a node shows of its log, its snapshots and its disk. Set by the compaction task, up to one of its rounds old.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The figures of log, snapshots and disk. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompactionMetrics {
    pub(crate) tail_entries: Gauge,
    pub(crate) tail_bytes: Gauge,
    pub(crate) purged_index: Gauge,
    pub(crate) live_records: Gauge,
    pub(crate) disk_bytes: Gauge,
    pub(crate) snapshot_index: Gauge,
    pub(crate) snapshot_built_at: Gauge,
    pub(crate) snapshot_bytes: Gauge,
    pub(crate) snapshot_age_seconds: Gauge<f64, AtomicU64>,
    /// Records that this node restated as leader.
    pub(crate) restated: Counter,
    built: Counter,
    installed: Counter,
}

impl CompactionMetrics {
    /// Counts the snapshots built and installed since `before`.
    pub(crate) fn count(&self, before: (u64, u64), now: (u64, u64)) {
        self.built.inc_by(now.0 - before.0);
        self.installed.inc_by(now.1 - before.1);
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("tail_entries", "Log entries that are not purged", self.tail_entries.clone());
        registry.register_with_unit("tail", "Bytes of them", Unit::Bytes, self.tail_bytes.clone());
        registry.register("purged_index", "Index of the last log entry purged", self.purged_index.clone());
        registry.register("live_records", "Holds in force, as this node knows", self.live_records.clone());
        let text = "What the data directory occupies, up to some seconds ago";
        registry.register_with_unit("disk", text, Unit::Bytes, self.disk_bytes.clone());
        registry.register("snapshot_index", "Label of the newest snapshot", self.snapshot_index.clone());
        let text = "Index below which a table built from the newest snapshot serves nothing";
        registry.register("snapshot_built_at", text, self.snapshot_built_at.clone());
        registry.register_with_unit("snapshot", "Size of it", Unit::Bytes, self.snapshot_bytes.clone());
        let text = "Time since this process made or opened it";
        registry.register_with_unit("snapshot_age", text, Unit::Seconds, self.snapshot_age_seconds.clone());
        registry.register("snapshots_built", "Snapshots that this node took", self.built.clone());
        let text = "Snapshots that this node got from a leader";
        registry.register("snapshots_installed", text, self.installed.clone());
        let text = "Records that this node said once more as leader, so that the log before them can go";
        registry.register("restated_records", text, self.restated.clone());
    }
}
