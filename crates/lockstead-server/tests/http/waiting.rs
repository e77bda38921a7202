//! A client that goes away while it waits.

use std::time::Duration;

use tokio::time::timeout;

use crate::fake_node::{Event, Script};
use crate::wire::{Client, Server, acquire};

const SOON: Duration = Duration::from_secs(5);

async fn check_withdrawn_by(leave: impl AsyncFnOnce(Client)) {
    let mut server = Server::start(vec![Script::Never]).await;
    let mut client = server.connect().await;
    client.send(&acquire(r#"{"name":"a","wait_ms":300000}"#)).await;
    server.submitted().await;
    leave(client).await;
    let event = timeout(SOON, server.events.recv()).await.expect("the request is dropped with its connection");
    assert!(matches!(event, Some(Event::Withdrawn)));
}

#[tokio::test]
async fn a_client_that_closes_withdraws_its_request() {
    check_withdrawn_by(async |client| drop(client)).await;
}

#[tokio::test]
async fn a_client_that_resets_withdraws_its_request() {
    check_withdrawn_by(async |client| {
        client.stream.get_ref().set_zero_linger().unwrap();
        drop(client);
    })
    .await;
}
