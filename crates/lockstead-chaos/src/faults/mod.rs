//! What is done to a cluster: which kinds there are, when they come, how they are done, and whether they did anything.

mod action;
mod effect;
pub mod kind;
mod members;
mod midway;
mod schedule;
mod strike;

pub use kind::Kind;
pub use schedule::{Planned, schedule};
pub use strike::{Striker, Struck};
