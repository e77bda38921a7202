//! The line that says that a node serves.

use std::time::Duration;

use lockstead_raft::{NotReady, Replica, Role};
use tokio::time::sleep;
use tracing::info;

use super::Addresses;
use crate::config::NodeConfig;
use crate::text;

const POLL: Duration = Duration::from_millis(20);

/// Prints one line on stdout once the node is ready, as a voter or as the learner that it is to stay.
pub(super) async fn say_when_ready(replica: &Replica, config: &NodeConfig, addresses: &Addresses) {
    let mut last = None;
    let part = loop {
        match replica.readiness() {
            Ok(()) => break "voter",
            Err(NotReady::NotVoter) if is_learner(replica) => break "learner",
            Err(reason) if last.as_ref() != Some(&reason) => {
                info!("not ready yet: {reason}");
                last = Some(reason);
            }
            Err(_) => {}
        }
        sleep(POLL).await;
    };
    let Addresses { api, peer } = addresses;
    let line = format!("ready: node {} ({part}) serves http://{api}, peers on {peer}", config.node_id);
    // Nobody is left to be told if stdout is gone; the node serves all the same.
    let _unheard = text::print_line(line.as_bytes());
}

/// A node that is to vote comes here only after its promotion, or after a restart as the learner that it was.
fn is_learner(replica: &Replica) -> bool {
    let view = replica.view();
    view.members.iter().any(|member| member.id == view.node_id && member.role == Role::Learner)
}
