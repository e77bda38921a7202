//! An async client of a Lockstead cluster.
//!
//! A [`Client`] knows some nodes, follows the leader that answers name, and goes on to the next node when one is silent
//! or has no quorum, with growing pauses, until the call's time is over. Refusals (held, not holder, …) are outcomes;
//! a [`CallError`] means that it could not find out.
//!
//! Invariants:
//! 1. All tries of one acquire carry the same request id; its retries say how long it has waited.
//! 2. A [`Lease`] counts from before the answered try was sent, on the clock that ran further, minus a margin.
//! 3. An owner is never made up.
//! 4. A client talks to one cluster: the first whose id it hears. An answer of another one is an error. It hears it
//!    before it sends what may wait; of what may not, an answer that was lost leaves it unheard.

mod backoff;
mod client;
mod clock;
mod endpoint;
mod error;
mod exchange;
mod lease;
mod members;
mod outcome;
mod random;
mod request;
mod route;
mod tries;

pub use client::{Client, ClientConfig};
pub use clock::Moment;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{CallError, Refusal};
pub use lease::Lease;
pub use lockstead_api as api;
pub use members::{MemberChange, MemberTerms};
pub use outcome::{AcquireOutcome, GetOutcome, Granted, Held, ReleaseOutcome, RenewOutcome, Renewed, Reply};
pub use request::{Acquire, Claim, Freshness, Renew, Wait};
