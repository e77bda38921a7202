//! Clusters of real processes under faults. `LOCKSTEAD_TEST_SCALE=full` takes the full sizes.

#![cfg(test)]

#[path = "../harness/mod.rs"]
mod harness;

mod abandoned;
mod admin_ends;
mod backup;
mod basics;
mod cut_off;
mod failover;
mod growth;
mod half_changes;
mod herd;
mod hold_offs;
mod identity;
mod limits;
mod lost_answers;
mod membership;
mod moves;
mod names;
mod out_of_touch;
mod queues;
mod quorum;
mod renewals;
mod restarts;
mod slow_clients;
mod snapshots;
mod stale_tokens;
mod stalls;
mod strain;
mod transcripts;
mod turmoil;
mod values;
mod watching;
