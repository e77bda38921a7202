//! Who answers now, and whether that is enough.

use std::collections::BTreeSet;
use std::time::Duration;

use lockstead_core::NodeId;
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::{Instant, timeout};

use crate::types::Raft;

/// Voters of which more than half have to answer.
pub(super) type Voters = BTreeSet<NodeId>;

/// The voters of the membership in force; two sets while it is joint.
pub(super) fn voters_in_force(raft: &Raft) -> Vec<Voters> {
    raft.server_metrics().borrow_watched().membership_config.get_joint_config().clone()
}

/// The voters that there are once no change is half made.
pub(super) fn coming_voters(raft: &Raft) -> Voters {
    voters_in_force(raft).pop().unwrap_or_default()
}

/// The nodes that have answered this leader after this call, itself included: all of them, or as soon as `enough`.
pub(super) async fn answering(raft: &Raft, time_max: Duration, enough: impl Fn(&Voters) -> bool) -> Voters {
    let asked_at = Instant::now();
    let mut metrics = raft.metrics();
    let mut answering = Voters::new();
    let until_enough = async {
        loop {
            {
                let metrics = metrics.borrow_watched();
                let heard = metrics.heartbeat.iter().flatten();
                let fresh = heard.filter(|(_, at)| at.as_ref().is_some_and(|at| at.elapsed() < asked_at.elapsed()));
                answering.extend(fresh.map(|(id, _)| *id));
                answering.insert(metrics.id);
            }
            if enough(&answering) || metrics.changed().await.is_err() {
                return;
            }
        }
    };
    // What has come by then has to do.
    let _in_time = timeout(time_max, until_enough).await;
    answering
}

/// Whether each of these sets has a majority among those who answer.
pub(super) fn are_quorums(sets: &[Voters], answering: &Voters) -> bool {
    sets.iter().all(|voters| 2 * voters.intersection(answering).count() > voters.len())
}

/// What there is to say about a number of voters.
pub(super) fn warning_about(voters: usize) -> Option<String> {
    let even = voters.is_multiple_of(2);
    even.then(|| match voters {
        2 => "2 voters: the loss of either stops the cluster; 3 tolerate one".to_owned(),
        _ => format!("{voters} voters tolerate no more failures than {}", voters - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sets: &[&[NodeId]], answering: &[NodeId], expected: bool) {
        let sets: Vec<Voters> = sets.iter().map(|set| set.iter().copied().collect()).collect();
        assert_eq!(are_quorums(&sets, &answering.iter().copied().collect()), expected, "{sets:?} {answering:?}");
    }

    #[test]
    fn a_quorum_is_more_than_half_of_each_set() {
        check(&[&[1, 2, 3]], &[1, 2], true);
        check(&[&[1, 2, 3]], &[1], false);
        check(&[&[1, 2]], &[1], false);
        check(&[&[1, 2, 3, 4]], &[1, 2], false);
        check(&[&[1, 2, 3], &[1, 3]], &[1, 2], false);
        check(&[&[1, 2, 3], &[1, 2]], &[1, 2, 9], true);
    }

    #[test]
    fn an_even_number_of_voters_is_worth_a_word() {
        assert_eq!(warning_about(1), None);
        assert_eq!(warning_about(3), None);
        assert!(warning_about(2).unwrap().contains("either"));
        assert!(warning_about(4).unwrap().contains("no more failures than 3"));
    }
}
