//! Bodies beyond their bounds.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::wire::{Server, acquire};

const CHUNKED_HEAD: &str = "POST /v1/locks/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_body_that_declares_too_much_is_refused_before_it_is_sent() {
    let mut server = Server::start(vec![]).await;
    let mut client = server.connect().await;
    client
        .send("POST /v1/locks/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 65537\r\n\r\n")
        .await;
    let refused = client.answer().await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("too_large", Some("close")));
    client.stream.get_mut().shutdown().await.unwrap();
    client.closed().await;
    assert!(server.events.try_recv().is_err());
}

#[tokio::test]
async fn a_refusal_is_written_though_bytes_of_the_body_are_unread() {
    let server = Server::start(vec![]).await;
    for _ in 0..20 {
        let mut client = server.connect().await;
        client
            .send("POST /v1/locks/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 65537\r\n\r\n{\"na")
            .await;
        assert_eq!(client.answer().await.code(), "too_large");
    }
}

#[tokio::test]
async fn a_body_at_the_bound_is_read() {
    let server = Server::start(vec![]).await;
    let body = format!(r#"{{"x":"{}"}}"#, "x".repeat(65_536 - 8));
    assert_eq!(server.post("/v1/locks/acquire", &body).await.code(), "invalid_field");
    let refused = server.post("/v1/locks/acquire", &format!("{body} ")).await;
    assert_eq!(refused.code(), "too_large");
}

#[tokio::test]
async fn an_endless_chunked_body_is_refused_at_the_bound() {
    let server = Server::start(vec![]).await;
    let client = server.connect().await;
    let (mut reader, mut writer) = client.stream.into_inner().into_split();
    let sending = tokio::spawn(async move {
        let mut sent_bytes = 0_u64;
        writer.write_all(CHUNKED_HEAD.as_bytes()).await.unwrap();
        let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
        while writer.write_all(chunk.as_bytes()).await.is_ok() {
            sent_bytes += 0x4000;
        }
        sent_bytes
    });
    let mut head = [0; 12];
    reader.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    let sent_bytes = sending.await.unwrap();
    assert!(sent_bytes < 64 * 1_024 * 1_024, "{sent_bytes} bytes were taken");
}

#[tokio::test]
async fn deep_json_and_large_metadata_are_answers() {
    let server = Server::start(vec![]).await;
    let deep = format!(r#"{{"name":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(server.post("/v1/locks/acquire", &deep).await.code(), "invalid_name");
    assert_eq!(server.post("/v1/locks/acquire", &"[".repeat(10_000)).await.code(), "invalid_json");
    let large = format!(r#"{{"name":"a","metadata":{{"k":"{}"}}}}"#, "v".repeat(5_000));
    assert_eq!(server.post("/v1/locks/acquire", &large).await.code(), "invalid_metadata");
    let huge = format!(r#"{{"name":"a","metadata":{{"k":"{}"}}}}"#, "v".repeat(1_024 * 1_024));
    let mut client = server.connect().await;
    client.send(&acquire(&huge)).await;
    assert_eq!(client.answer().await.code(), "too_large");
}

#[tokio::test]
async fn a_broken_chunk_is_an_answer() {
    let server = Server::start(vec![]).await;
    let mut client = server.connect().await;
    client.send(&format!("{CHUNKED_HEAD}zz\r\n")).await;
    assert_eq!(client.answer().await.code(), "invalid_json");
}
