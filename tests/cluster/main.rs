//! Clusters of real processes under faults. `LOCKSTEAD_TEST_SCALE=full` takes the full sizes.

#![cfg(test)]

#[path = "../harness/mod.rs"]
mod harness;

mod abandoned;
mod basics;
mod cut_off;
mod failover;
mod herd;
mod identity;
mod limits;
mod lost_answers;
mod mixed_faults;
mod names;
mod queues;
mod quorum;
mod renewals;
mod restarts;
mod slow_clients;
mod stale_tokens;
mod stalls;
mod strain;
mod turmoil;
mod values;
