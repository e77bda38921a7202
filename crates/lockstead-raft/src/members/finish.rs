//! What a lost leader left half done.

use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use tokio::time::{Instant, sleep};

use super::newcomers::CHANGE_TIME_MAX;
use super::plan::Plan;
use super::quorum::voters_in_force;
use crate::platform::Platform;
use crate::service::Service;

/// How long to wait before a joint membership is looked at once more.
const FINISH_AGAIN: Duration = Duration::from_millis(500);

/// Makes a joint membership a plain one whenever this node leads and no change of its own is under way.
///
/// Whoever was to be removed stays a learner: the request is repeated by whoever made it, and removes it then.
pub(crate) async fn finish_joint_changes<P: Platform>(service: Service<P>) {
    let mut metrics = service.raft.server_metrics();
    loop {
        let left_behind = {
            let metrics = metrics.borrow_watched();
            metrics.state.is_leader() && metrics.membership_config.get_joint_config().len() > 1
        };
        if left_behind && service.changing.try_lock().is_ok() {
            service.finish_alone().await;
        }
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            () = sleep(FINISH_AGAIN), if left_behind => {}
        }
    }
}

impl<P: Platform> Service<P> {
    /// The rest of a change that a former leader has begun, if it left one behind.
    pub(super) fn rest_of_a_change(&self) -> Option<Plan> {
        match &voters_in_force(&self.raft)[..] {
            [_, .., coming] => Some(Plan::finishing(coming.clone())),
            _ => None,
        }
    }

    async fn finish_alone(&self) {
        let ends = Instant::now() + CHANGE_TIME_MAX;
        // A joint membership has to be committed before it is gone on from.
        if self.check_leadership(ends).await.is_ok()
            && let Err(answer) = self.in_turn_with(ends, || Ok(None)).await
        {
            tracing::info!(?answer, "a change that a former leader had begun is left for later");
        }
    }
}
