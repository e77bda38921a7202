//! The routes, by name.

use std::fmt::Write;

use lockstead_api::{ACQUIRE_PATH, CLUSTER_PATH, GET_PATH, RELEASE_PATH, RENEW_PATH};
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// A route, as it stands in metrics and logs: never a path that a client made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Acquire,
    Release,
    Renew,
    Get,
    Cluster,
    Livez,
    Readyz,
    Metrics,
    Unknown,
}

impl Route {
    const KNOWN: [Self; 8] =
        [Self::Acquire, Self::Release, Self::Renew, Self::Get, Self::Cluster, Self::Livez, Self::Readyz, Self::Metrics];

    pub(crate) fn of(path: &str) -> Self {
        Self::KNOWN.into_iter().find(|route| route.path() == path).unwrap_or(Self::Unknown)
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Acquire => ACQUIRE_PATH,
            Self::Release => RELEASE_PATH,
            Self::Renew => RENEW_PATH,
            Self::Get => GET_PATH,
            Self::Cluster => CLUSTER_PATH,
            Self::Livez => "/livez",
            Self::Readyz => "/readyz",
            Self::Metrics => "/metrics",
            Self::Unknown => "unknown",
        }
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.path())
    }
}
