//! A process that has run out of file descriptors. A test binary of its own, since the limit is the whole process's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "http/fake_node.rs"]
#[expect(dead_code, reason = "shared with the other test binary, which uses all of it")]
mod fake_node;
#[path = "http/wire.rs"]
#[expect(dead_code, reason = "shared with the other test binary, which uses all of it")]
mod wire;

use std::fs::File;
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::BufReader;
use tokio::net::{TcpSocket, TcpStream};

use wire::{Client, Server};

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";

fn fill_descriptors() -> Vec<File> {
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files
}

async fn connect(socket: TcpSocket, address: SocketAddr) -> Client {
    let stream: TcpStream = socket.connect(address).await.unwrap();
    Client { stream: BufReader::new(stream) }
}

#[tokio::test(start_paused = true)]
async fn without_descriptors_open_connections_live_on_and_new_ones_are_served_once_there_are_some() {
    let server = Server::start(vec![]).await;
    let mut open = server.connect().await;
    open.send(LIVEZ).await;
    assert_eq!(open.answer().await.status, 200);

    let socket = TcpSocket::new_v4().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: getrlimit(Resource::Nofile).maximum }).unwrap();
    let files = fill_descriptors();
    open.send(LIVEZ).await;
    assert_eq!(open.answer().await.status, 200);

    // The idle connection is closed for the new one, whose accept had failed before.
    let mut new = connect(socket, server.address).await;
    new.send(LIVEZ).await;
    assert_eq!(new.answer().await.status, 200);
    drop(open);

    drop(files);
    let mut later = server.connect().await;
    later.send(LIVEZ).await;
    assert_eq!(later.answer().await.status, 200);
}
