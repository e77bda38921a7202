//! Changes of the membership and of who leads, as operators ask for them.
//!
//! Any node takes a request and passes it to the leader ([`carry`]), which decides and performs it ([`plan`],
//! [`change`], [`handover`]). A node that is to be added is looked at before ([`newcomer`]). What nodes ask for
//! themselves goes the same way ([`newcomers`]).
//!
//! Invariants:
//! 1. One change at a time, each through openraft's joint consensus; a joint membership that a lost leader left behind
//!    is finished by the next one before anything else is changed ([`finish`]).
//! 2. Nothing is changed that would leave fewer voters answering *now* than a quorum of the old or of the new
//!    membership; only the cluster's own id forces it.
//! 3. Only a learner that has all that the log held when it was asked for, and whose table is the state of a moment,
//!    is promoted.
//! 4. Whoever leads is neither removed nor demoted nor moved: it hands over first, and its successor does it.
//! 5. Every call ends by its wait and 5 s, and nothing is begun for it afterwards; it is told that there is no leader
//!    only if nothing was begun.
//! 6. A leader refuses only what a quorum lets it refuse: one that follows it in the same term after it has decided.

mod carry;
mod change;
mod finish;
mod handover;
mod newcomer;
mod newcomers;
mod plan;
mod quorum;
mod types;

pub(crate) use finish::finish_joint_changes;
pub use types::{
    AddressKind, MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembershipId, ToGo,
};
pub(crate) use types::{MembersAnswer, NodeStatus};
