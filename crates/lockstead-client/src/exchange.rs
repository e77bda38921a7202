//! One try: one request to one node.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, IF_MATCH};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lockstead_api::{CLUSTER_HEADER, LEADER_HEADER};

use crate::clock::Moment;
use crate::endpoint::Endpoint;

const CONNECT: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(15);
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// What is asked of a node.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    /// A JSON body, empty for none.
    pub(crate) body: Bytes,
    /// The header `if-match`.
    pub(crate) if_match: Option<String>,
    /// Says what is odd with the body of a 200.
    pub(crate) check: fn(&Bytes) -> Result<(), String>,
}

/// What a node said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    pub(crate) leader: Option<Endpoint>,
    /// The lineage that the node belongs to.
    pub(crate) cluster: Option<String>,
    /// Read before the request was sent.
    pub(crate) sent: Moment,
}

/// Why a try brought no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Silence {
    /// No connection: the node knows nothing of the request.
    #[error("{0}")]
    NotSent(String),
    /// The connection was lost, or no answer came in time: it may or may not have taken effect.
    #[error("{0}")]
    NoAnswer(String),
}

/// Connections to all nodes, kept alive between requests.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    http: Client<HttpConnector, Full<Bytes>>,
}

impl Exchange {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let http = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self { http }
    }

    /// Sends a request and reads the whole answer. Dropping the future drops the connection, by which the node learns
    /// that nobody waits any more.
    ///
    /// A node of another cluster than `cluster` refuses the request.
    pub(crate) async fn send(
        &self,
        endpoint: &Endpoint,
        call: &Call,
        cluster: Option<&str>,
        time_max: Duration,
    ) -> Result<Said, Silence> {
        let request = request(endpoint, call, cluster).map_err(|error| Silence::NotSent(error.to_string()))?;
        let sent = Moment::now();
        match tokio::time::timeout(time_max, self.answer(request, sent)).await {
            Ok(answer) => answer,
            Err(_) => Err(Silence::NoAnswer(format!("no answer within {} ms", time_max.as_millis()))),
        }
    }

    async fn answer(&self, request: Request<Full<Bytes>>, sent: Moment) -> Result<Said, Silence> {
        let response = self.http.request(request).await.map_err(|error| silence(&error))?;
        let (status, leader, cluster) = (response.status(), leader(&response), cluster(&response));
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Silence::NoAnswer(format!("the answer broke off: {error}")))?;
        Ok(Said { status, body: body.to_bytes(), leader, cluster, sent })
    }
}

fn request(
    endpoint: &Endpoint,
    call: &Call,
    cluster: Option<&str>,
) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let mut builder = with_content_type(Request::builder(), call);
    if let Some(cluster) = cluster {
        builder = builder.header(CLUSTER_HEADER, cluster);
    }
    if let Some(tag) = &call.if_match {
        builder = builder.header(IF_MATCH, tag);
    }
    builder
        .method(call.method.clone())
        .uri(endpoint.uri(&call.path)?)
        .header(ACCEPT, "application/json")
        .body(Full::new(call.body.clone()))
}

fn with_content_type(builder: Builder, call: &Call) -> Builder {
    if call.body.is_empty() { builder } else { builder.header(CONTENT_TYPE, "application/json") }
}

fn leader(response: &Response<Incoming>) -> Option<Endpoint> {
    response.headers().get(LEADER_HEADER)?.to_str().ok()?.parse().ok()
}

fn cluster(response: &Response<Incoming>) -> Option<String> {
    Some(response.headers().get(CLUSTER_HEADER)?.to_str().ok()?.to_owned())
}

fn silence(error: &hyper_util::client::legacy::Error) -> Silence {
    let why = innermost(error);
    if error.is_connect() { Silence::NotSent(why) } else { Silence::NoAnswer(why) }
}

/// The deepest cause says what happened; the layers above only say where.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
