//! A server under test, and a client that sends exactly the bytes it is told to.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use lockstead_server::{ServerConfig, serve};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fake_node::{Event, FakeNode, Script};

pub(crate) struct Server {
    pub(crate) node: FakeNode,
    pub(crate) events: UnboundedReceiver<Event>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) serving: JoinHandle<io::Result<()>>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn start(scripts: Vec<Script>) -> Self {
        Self::start_with(scripts, ServerConfig::default()).await
    }

    pub(crate) async fn start_with(scripts: Vec<Script>, config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (node, events) = FakeNode::new(scripts);
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, node.clone(), config, shutdown.clone()));
        Self { node, events, shutdown, serving, address }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: BufReader::new(TcpStream::connect(self.address).await.unwrap()) }
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        let mut client = self.connect().await;
        client.send(&format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        client.answer().await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        let mut client = self.connect().await;
        client.send(&post(path, body)).await;
        client.answer().await
    }

    /// Waits until a request is before the node.
    pub(crate) async fn submitted(&mut self) -> (lockstead_core::Op, std::time::Duration) {
        match self.events.recv().await.unwrap() {
            Event::Submitted(op, time_left) => (op, time_left),
            Event::Withdrawn => panic!("a request was withdrawn"),
        }
    }
}

pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

pub(crate) fn acquire(body: &str) -> String {
    post("/v1/locks/acquire", body)
}

pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let status_line = self.line().await;
        let status = status_line.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {status_line:?}"));
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = self.line().await.split_once(": ") {
            headers.insert(name.to_owned(), value.to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        Answer { status: status.parse().unwrap(), headers, body: String::from_utf8(body).unwrap() }
    }

    /// Waits until the server has closed the connection without another byte.
    pub(crate) async fn closed(&mut self) {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "", "the connection ends without another byte");
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> String {
        let body: lockstead_api::ErrorBody = serde_json::from_str(&self.body).unwrap();
        assert_eq!(body.error.code.http_status(), self.status, "{self:?}");
        body.error.code.as_str().to_owned()
    }
}
