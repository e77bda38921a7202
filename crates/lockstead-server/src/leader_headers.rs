//! The headers of every answer: who leads, and which cluster this is.

use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use lockstead_core::ClusterId;
use lockstead_raft::LeaderView;

use crate::node::Node;

const LEADER: HeaderName = HeaderName::from_static(lockstead_api::LEADER_HEADER);
const CLUSTER: HeaderName = HeaderName::from_static(lockstead_api::CLUSTER_HEADER);

/// Header values, made anew only when what they say has changed.
#[derive(Debug, Default)]
pub(crate) struct LeaderHeaders {
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    leader: Option<LeaderView>,
    leader_value: Option<HeaderValue>,
    cluster: Option<ClusterId>,
    cluster_value: Option<HeaderValue>,
}

impl LeaderHeaders {
    /// Adds what the node knows now.
    pub(crate) fn add<N: Node>(&self, node: &N, headers: &mut HeaderMap) {
        let (leader, cluster) = (node.leader(), node.cluster_id());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.leader != leader {
            made.leader_value = leader.as_ref().and_then(|leader| header_value(&format!("http://{}", leader.api)));
            made.leader = leader;
        }
        if made.cluster != cluster {
            made.cluster_value = cluster.and_then(|cluster| header_value(&cluster.to_string()));
            made.cluster = cluster;
        }
        for (name, value) in [(LEADER, &made.leader_value), (CLUSTER, &made.cluster_value)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
}

fn header_value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}
