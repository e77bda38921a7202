//! What a node says of peers that refuse it: at once, and not again at each of the many tries that follow.

use std::collections::BTreeMap;
use std::time::Duration;

use lockstead_core::NodeId;
use tokio::time::Instant;

use crate::peer::RefusedWhy;

/// How long the same is not said again of a peer.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// What was said last of each peer.
#[derive(Debug, Default)]
pub(crate) struct Complaints(BTreeMap<NodeId, (RefusedWhy, Instant)>);

impl Complaints {
    /// Whether this refusal is worth a line: it has another reason than the last line of this peer, or that was long
    /// ago.
    pub(crate) fn is_news(&mut self, by: NodeId, why: RefusedWhy, now: Instant) -> bool {
        let was_said = |(last, at): &(RefusedWhy, Instant)| *last == why && now.duration_since(*at) < SAY_AGAIN;
        let is_news = !self.0.get(&by).is_some_and(was_said);
        if is_news {
            self.0.insert(by, (why, now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_once_and_again_with_another_reason_or_after_a_while() {
        let (mut complaints, start) = (Complaints::default(), Instant::now());
        let mut said = |by, why, at_ms| complaints.is_news(by, why, start + Duration::from_millis(at_ms));
        assert!(said(2, RefusedWhy::WrongCluster, 0));
        assert!(!said(2, RefusedWhy::WrongCluster, 100));
        assert!(said(3, RefusedWhy::WrongCluster, 100), "another peer");
        assert!(said(2, RefusedWhy::WrongNode, 200), "another reason");
        assert!(!said(2, RefusedWhy::WrongNode, 10_199));
        assert!(said(2, RefusedWhy::WrongNode, 10_200), "it lasts");
        assert!(!said(2, RefusedWhy::WrongNode, 20_199), "counted from the last line");
    }
}
