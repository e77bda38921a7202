//! The pure heart of Lockstead: names, fences, records, the table, the arbiter's decisions, lease-clock arithmetic.
//!
//! Nothing here reads a clock, draws a random number, performs I/O or is `async`: time, tokens and the table are passed
//! in, so the same state and the same input always give the same output.

pub mod arbiter;
pub mod identity;
pub mod lease_clock;
pub mod name;
pub mod record;
pub mod request;
pub mod residue;
pub mod table;
pub mod units;

pub use arbiter::{Arbiter, Decided, Drain, Limits, Now, Restating};
pub use identity::{ClusterId, Incarnation, NodeId};
pub use lease_clock::{ClockReading, LeaseClock};
pub use name::{LockKey, LockName, Metadata, NameError, NamespaceName, OwnerName, RequestId};
pub use record::{Batch, BatchEncoder, DropReason, Hold, Live, Mode, Record, SessionId};
pub use request::{
    Acquire, Answer, Get, GiveBack, Grant, HeldBy, HolderView, LockView, Op, Outcome, Proof, Release, Renew, Renewal,
    Request, RequestNumber, WaiterView,
};
pub use residue::{FencesUsedUp, HoldOff, Residue};
pub use table::{Applied, Table};
pub use units::{Fence, LeaseTime, LocalTime, Token, Ttl, TtlError, WallTime};
