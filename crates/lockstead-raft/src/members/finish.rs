//! What a lost leader left half done.

use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::sleep;

use crate::types::Raft;

/// How long to wait before a joint membership is looked at once more.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Makes a joint membership a plain one whenever this node leads and no change of its own is under way.
///
/// Whoever was to be removed stays a learner: the request is repeated by whoever made it, and removes it then.
pub(crate) async fn finish_joint_changes(raft: Raft, changing: Arc<tokio::sync::Mutex<()>>) {
    let mut metrics = raft.server_metrics();
    loop {
        let left_behind = {
            let metrics = metrics.borrow_watched();
            metrics.state.is_leader() && metrics.membership_config.get_joint_config().len() > 1
        };
        if left_behind && let Ok(_one_at_a_time) = changing.try_lock() {
            let finished = raft.change_membership(ChangeMembers::AddVoterIds([].into()), true).await;
            tracing::info!(?finished, "finished a change of the membership that a former leader had begun");
        }
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            () = sleep(LOOK_AGAIN), if left_behind => {}
        }
    }
}
