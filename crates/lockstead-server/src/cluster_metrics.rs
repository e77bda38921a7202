//! What `/readyz` and `/v1/admin/cluster` show, as gauges. Each scrape asks the node afresh, which never blocks and
//! costs no log entry; so a member that was removed has no series any more.

use std::fmt;
use std::time::Duration;

use lockstead_raft::{ClusterView, MemberView, NotReady, Role};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelValue};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::health::reason;
use crate::node::Node;

/// The gauges of what a node knows of itself and its cluster.
pub(crate) struct ClusterMetrics<N>(pub(crate) N);

impl<N> fmt::Debug for ClusterMetrics<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterMetrics")
    }
}

impl<N: Node> Collector for ClusterMetrics<N> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // In this order: a node that is not ready for want of a leader does not show beside it that it leads.
        let (readiness, view) = (self.0.readiness(), self.0.view());
        let mut page = Page(encoder);
        page.readiness(&readiness)?;
        page.node(&view)?;
        // Others know nothing of the members but their names.
        if view.leader == Some(view.node_id) { page.members(&view.members) } else { Ok(()) }
    }
}

struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn readiness(&mut self, readiness: &Result<(), NotReady>) -> fmt::Result {
        self.gauge("ready", "1 if this node is ready, as /readyz says.", u64::from(readiness.is_ok()))?;
        let why = readiness.as_ref().err().map(|not_ready| (reason(not_ready), 1));
        self.family("not_ready", "1, with the reason why this node is not ready.", "reason", why)
    }

    fn node(&mut self, view: &ClusterView) -> fmt::Result {
        let text = "1 if this node leads, and a majority has answered it lately.";
        self.gauge("leading", text, u64::from(view.leads))?;
        self.gauge("term", "The term of this node.", view.term)?;
        let text = "How many more voters may fail. The leader counts the silent ones, other nodes know of none.";
        self.gauge("failures_tolerated", text, view.failures_tolerated)?;
        let voters = view.members.iter().filter(|member| member.role != Role::Learner).count();
        self.gauge("voters", "Members that vote, as this node knows.", voters)?;
        self.gauge("last_log_index", "Index of the last log entry.", view.last_log)?;
        self.gauge("committed_index", "Index of the last log entry known to be committed.", view.committed)?;
        self.gauge("applied_index", "Index of the last log entry applied.", view.applied)?;
        let text = "For how long nothing is granted, after a restore or recovery.";
        self.seconds("hold_off", text, Duration::from_millis(view.hold_off_ms))
    }

    fn members(&mut self, members: &[MemberView]) -> fmt::Result {
        let reachable = members.iter().filter_map(|member| Some((member.id, u64::from(member.reachable?))));
        let text = "1 if the member has answered this leader lately.";
        self.family("member_reachable", text, "member", reachable)?;
        let lag = members.iter().filter_map(|member| Some((member.id, member.lag?)));
        self.family("member_lag_entries", "Log entries of this leader that the member lacks.", "member", lag)
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue + Copy) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn seconds(&mut self, name: &str, help: &str, value: Duration) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        metric.encode_gauge(&value.as_secs_f64())
    }

    /// One series per pair of a label's value and the gauge's; nothing at all without any.
    fn family<L: EncodeLabelValue>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        series: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        series.try_for_each(|(of, value)| family.encode_family(&[(label, of)])?.encode_gauge(&value))
    }
}
