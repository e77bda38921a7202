//! Looking at a node before it is taken in: it has to be there, and to be the one that is meant.

use lockstead_core::NodeId;
use tokio::time::{Instant, sleep};

use super::change::{LOOK_AGAIN, Step, refuse};
use super::types::{AddressKind, MemberRefusal};
use crate::node::member;
use crate::peer::Found;
use crate::platform::Platform;
use crate::service::Service;
use crate::types::Member;

impl<P: Platform> Service<P> {
    /// Who is to be taken in, as it says itself; `None` if it is a member already.
    pub(super) async fn newcomer(&self, id: NodeId, peer: &str, api: &str, ends: Instant) -> Step<Option<Member>> {
        if let Some(known) = member(&self.raft, id) {
            return self.check_directory(id, &known).await.map(|()| None);
        }
        self.check_not_retired(id)?;
        loop {
            let why = match self.dialer.look_at(peer).await {
                Ok(found) => match self.fits(&found, id, peer, api) {
                    Ok(()) => return Ok(Some(found.as_member())),
                    Err(refusal) => return refuse(refusal),
                },
                Err(why) => format!("nobody answers at {peer} as node {id}: {why}"),
            };
            if Instant::now() + LOOK_AGAIN > ends {
                return refuse(MemberRefusal::NodeUnreachable(why));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Where a member is to be reached there is itself, or nobody yet.
    pub(super) async fn check_place(&self, id: NodeId, peer: &str) -> Step<()> {
        let Some(known) = member(&self.raft, id).filter(|known| known.peer != peer) else { return Ok(()) };
        match self.dialer.look_at(peer).await {
            Ok(found) if (found.node_id, found.incarnation()) != (id, known.incarnation) => {
                let text = format!("node {} with directory {} runs at {peer}", found.node_id, found.incarnation());
                refuse(MemberRefusal::NodeUnreachable(text))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A node that waits under a member's id, without its data, is not that member. One that does not answer may be.
    async fn check_directory(&self, id: NodeId, known: &Member) -> Step<()> {
        match self.dialer.look_at(self.dialer.address(id, known)).await {
            // Somebody else's node has the address: this member is away, and whether it comes back is not known.
            Ok(found) if found.cluster.is_some() && found.cluster != self.identity.cluster_id() => Ok(()),
            Ok(found) if found.node_id == id && found.incarnation() != known.incarnation => {
                let text = format!(
                    "node {id} is a member with directory {}, and {} runs there now: remove node {id}, and add the new one \
                     under an id that was never used",
                    known.incarnation,
                    found.incarnation()
                );
                refuse(MemberRefusal::NodeIdReused(text))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A node that the membership names elsewhere than it is would end as soon as it hears of it.
    fn fits(&self, found: &Found, id: NodeId, peer: &str, api: &str) -> Result<(), MemberRefusal> {
        let unreachable = |text| Err(MemberRefusal::NodeUnreachable(text));
        let differs =
            |kind, advertised: &String| Err(MemberRefusal::AddressDiffers { id, kind, advertised: advertised.clone() });
        match found.cluster {
            _ if found.node_id != id => unreachable(format!("node {} answers there, not node {id}", found.node_id)),
            Some(cluster) if Some(cluster) != self.identity.cluster_id() => {
                unreachable(format!("node {id} belongs to cluster {cluster}"))
            }
            _ if found.advertised.peer != peer => differs(AddressKind::Peer, &found.advertised.peer),
            _ if found.advertised.api != api => differs(AddressKind::Api, &found.advertised.api),
            _ => Ok(()),
        }
    }
}
