//! openraft's own test suite for stores.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::open;
use crate::identity::ClusterCell;
use crate::store::{LogStore, StateMachine};
use crate::types::TypeConfig;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let log = open(&dir.path().join("log"));
        let machine = StateMachine::open(&dir.path().join("snapshots"), log.clone(), ClusterCell::default()).unwrap();
        Ok((dir, log, machine))
    }
}

#[tokio::test]
async fn the_store_passes_the_suite_of_openraft() {
    Suite::<TypeConfig, LogStore, StateMachine, Builder, TempDir>::test_all(Builder).await.unwrap();
}
