//! Whatever happens to a cluster, the tables of all replicas at or above `built_at` are those of a replay of the whole
//! history; and a reading of the rules that breaks this is found.
//!
//! `LOCKSTEAD_TEST_SCALE=full` tries many more histories.

mod cluster;
mod model;
mod replica;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use cluster::{Cluster, Step, step};
use replica::Reading;

fn histories() -> u32 {
    let full = std::env::var("LOCKSTEAD_TEST_SCALE").is_ok_and(|scale| scale == "full");
    if full { 200_000 } else { 3_000 }
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_agree_with_a_replay_of_the_whole_history(steps in history()) {
        prop_assert_eq!(Cluster::run(Reading::Right, &steps), Ok(()));
    }
}

#[test]
fn every_wrong_reading_is_found() {
    let mut missed = Reading::WRONG.to_vec();
    let mut runner = TestRunner::deterministic();
    for tried in 1..=2_000 {
        let steps = history().new_tree(&mut runner).expect("no filter refuses it").current();
        assert_eq!(Cluster::run(Reading::Right, &steps), Ok(()));
        missed.retain(|reading| {
            let found = Cluster::run(*reading, &steps).is_err();
            if found {
                println!("{reading:?} is found by history {tried}");
            }
            !found
        });
        if missed.is_empty() {
            return;
        }
    }
    panic!("nothing is wrong with {missed:?}");
}
