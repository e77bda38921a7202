//! Clusters of real processes, faults done to them, and a checker of what their clients saw. For development only.

pub mod args;
pub mod binary;
pub mod checker;
pub mod clock;
pub mod cluster;
pub mod dice;
mod excuses;
pub mod faults;
pub mod history;
pub mod http;
pub mod observer;
pub mod report;
pub mod run;
pub mod verdict;
pub mod workload;
