//! A node that answers by script and remembers what it was asked.
#![expect(clippy::unwrap_used, reason = "a fake node that fails ends its test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstead_client::Endpoint;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What the node does with one request.
pub(crate) enum Step {
    /// Answers with a status, a body and perhaps a leader.
    Say(u16, String, Option<String>),
    /// Answers 200 as a node of this cluster.
    SayFrom(&'static str, String),
    /// Answers after this time.
    SayAfter(Duration, u16, String),
    /// Closes the connection without an answer.
    HangUp,
    /// Keeps silent and never closes.
    Hang,
}

const WHO: &str = "/livez";

pub(crate) struct FakeNode {
    pub(crate) endpoint: Endpoint,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// What the node answers beside its script to the question to which cluster it belongs.
#[derive(Clone, Copy)]
enum Who {
    Nothing,
    Hang,
    Member(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) target: String,
    /// The cluster that the request is meant for.
    pub(crate) cluster: Option<String>,
    pub(crate) body: Value,
}

pub(crate) fn say(status: u16, body: &str) -> Step {
    Step::Say(status, body.to_owned(), None)
}

pub(crate) fn error(status: u16, code: &str) -> Step {
    Step::Say(status, error_body(code), None)
}

pub(crate) fn error_after(pause: Duration, status: u16, code: &str) -> Step {
    Step::SayAfter(pause, status, error_body(code))
}

fn error_body(code: &str) -> String {
    format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#)
}

impl FakeNode {
    /// Starts a node; once its script is over it answers 500 to everything.
    pub(crate) async fn start(script: Vec<Step>) -> Self {
        Self::start_as(Who::Nothing, script).await
    }

    /// Starts a node of this cluster.
    pub(crate) async fn start_in(cluster: &'static str, script: Vec<Step>) -> Self {
        Self::start_as(Who::Member(cluster), script).await
    }

    /// Starts a node that takes connections and answers nothing.
    pub(crate) async fn start_hanging() -> Self {
        Self::start_as(Who::Hang, vec![Step::Hang]).await
    }

    async fn start_as(who: Who, script: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string().parse().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(serve(listener, who, script, Arc::clone(&asked)));
        Self { endpoint, asked }
    }

    /// What it was asked, in order, but for the question to which cluster it belongs.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.target != WHO).cloned().collect()
    }

    /// How often it was asked to which cluster it belongs.
    pub(crate) fn asked_who(&self) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.target == WHO).count()
    }
}

/// An address where nobody listens.
pub(crate) async fn nobody() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string().parse().unwrap()
}

async fn serve(listener: TcpListener, who: Who, script: Vec<Step>, asked: Arc<Mutex<Vec<Asked>>>) {
    let script = Arc::new(Mutex::new(script.into_iter()));
    while let Ok((stream, _)) = listener.accept().await {
        let (script, asked) = (Arc::clone(&script), Arc::clone(&asked));
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            while let Some(request) = read_request(&mut stream).await {
                let is_who = request.target == WHO;
                asked.lock().unwrap().push(request);
                if is_who {
                    say_who(&mut stream, who).await;
                    continue;
                }
                let step = script.lock().unwrap().next().unwrap_or(say(500, "the script is over"));
                match step {
                    Step::Say(status, body, leader) => answer(&mut stream, status, &body, leader).await,
                    Step::SayFrom(cluster, body) => {
                        answer_with(&mut stream, 200, &body, &format!("lockstead-cluster: {cluster}\r\n")).await;
                    }
                    Step::SayAfter(pause, status, body) => {
                        tokio::time::sleep(pause).await;
                        answer(&mut stream, status, &body, None).await;
                    }
                    Step::HangUp => return,
                    Step::Hang => std::future::pending().await,
                }
            }
        });
    }
}

async fn say_who(stream: &mut BufReader<TcpStream>, who: Who) {
    match who {
        Who::Nothing => answer_with(stream, 200, "{}", "").await,
        Who::Member(cluster) => answer_with(stream, 200, "{}", &format!("lockstead-cluster: {cluster}\r\n")).await,
        Who::Hang => std::future::pending().await,
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let target = lines[0].split(' ').nth(1).unwrap().to_owned();
    let cluster = lines.iter().find_map(|line| line.strip_prefix("lockstead-cluster: ")).map(str::to_owned);
    Some(Asked { target, cluster, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

async fn answer(stream: &mut BufReader<TcpStream>, status: u16, body: &str, leader: Option<String>) {
    let leader = leader.map(|leader| format!("lockstead-leader: {leader}\r\n")).unwrap_or_default();
    answer_with(stream, status, body, &leader).await;
}

async fn answer_with(stream: &mut BufReader<TcpStream>, status: u16, body: &str, headers: &str) {
    let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.unwrap();
}
