//! The routes, by name.

use std::fmt::Write;

use lockstead_api::{
    ACQUIRE_PATH, BACKUP_PATH, CLUSTER_PATH, DEMOTE_PATH, GET_PATH, LEADER_PATH, MEMBER_PATH, MEMBERS_PATH,
    PROMOTE_PATH, RELEASE_PATH, RENEW_PATH, SNAPSHOT_PATH,
};
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// A route, as it stands in metrics and logs: never a path that a client made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Acquire,
    Release,
    Renew,
    Get,
    Cluster,
    Snapshot,
    Backup,
    Members,
    Member,
    Promote,
    Demote,
    Leader,
    Livez,
    Readyz,
    Metrics,
    Unknown,
}

impl Route {
    const KNOWN: [Self; 15] = [
        Self::Acquire,
        Self::Release,
        Self::Renew,
        Self::Get,
        Self::Cluster,
        Self::Snapshot,
        Self::Backup,
        Self::Members,
        Self::Member,
        Self::Promote,
        Self::Demote,
        Self::Leader,
        Self::Livez,
        Self::Readyz,
        Self::Metrics,
    ];

    pub(crate) fn of(path: &str) -> Self {
        Self::KNOWN.into_iter().find(|route| fits(route.path(), path)).unwrap_or(Self::Unknown)
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Acquire => ACQUIRE_PATH,
            Self::Release => RELEASE_PATH,
            Self::Renew => RENEW_PATH,
            Self::Get => GET_PATH,
            Self::Cluster => CLUSTER_PATH,
            Self::Snapshot => SNAPSHOT_PATH,
            Self::Backup => BACKUP_PATH,
            Self::Members => MEMBERS_PATH,
            Self::Member => MEMBER_PATH,
            Self::Promote => PROMOTE_PATH,
            Self::Demote => DEMOTE_PATH,
            Self::Leader => LEADER_PATH,
            Self::Livez => "/livez",
            Self::Readyz => "/readyz",
            Self::Metrics => "/metrics",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether a path is of this pattern, in which `{id}` stands for one segment.
fn fits(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some("{id}"), Some(segment)) if !segment.is_empty() => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => return false,
        }
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_by_its_pattern() {
        assert_eq!(Route::of("/v1/admin/members"), Route::Members);
        assert_eq!(Route::of("/v1/admin/members/4"), Route::Member);
        assert_eq!(Route::of("/v1/admin/members/4/promote"), Route::Promote);
        for path in ["/v1/admin/members/", "/v1/admin/members/4/", "/v1/admin/members/4/5", "/v1/admin", ""] {
            assert_eq!(Route::of(path), Route::Unknown, "{path}");
        }
    }
}
