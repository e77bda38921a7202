//! What is counted, and the page that shows it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::node::Node;
use crate::route::Route;
use crate::service::Shared;

const OPENMETRICS: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// Upper bounds in seconds: from a commit on a fast disk to the longest wait.
const SECONDS_BUCKETS: [f64; 14] =
    [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 305.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Route,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: Route,
}

/// The metrics of the HTTP interface.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    connections: Gauge,
}

impl HttpMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS_BUCKETS)),
            connections: Gauge::default(),
        };
        registry.register("lockstead_http_requests", "Answers, by route and status code", metrics.requests.clone());
        registry.register_with_unit(
            "lockstead_http_request",
            "Time from the request's head to its answer, waiting included, by route",
            Unit::Seconds,
            metrics.request_seconds.clone(),
        );
        registry.register("lockstead_http_connections", "Open connections", metrics.connections.clone());
        metrics
    }

    pub(crate) fn answered(&self, route: Route, status: StatusCode, took: Duration) {
        self.requests.get_or_create(&RequestLabels { route, code: status.as_u16() }).inc();
        self.request_seconds.get_or_create(&RouteLabels { route }).observe(took.as_secs_f64());
    }

    pub(crate) fn connections(&self) -> &Gauge {
        &self.connections
    }
}

/// `GET /metrics`, as text in the open metrics format.
pub(crate) async fn metrics<N: Node>(State(shared): State<Arc<Shared<N>>>) -> Response {
    let mut text = String::new();
    let written = encode(&mut text, &shared.registry);
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, OPENMETRICS);
    response
}
