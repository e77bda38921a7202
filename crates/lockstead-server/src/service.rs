//! What every request passes through, once.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post, put};
use hyper::Request;
use hyper::body::Incoming;
use lockstead_api::{CLUSTER_HEADER, ErrorBody, ErrorCode};
use lockstead_raft::SubmitError;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tower::Service;
use tracing::{debug, info};

use crate::cluster_metrics::ClusterMetrics;
use crate::config::ServerConfig;
use crate::connection::Activity;
use crate::connections::waits_max;
use crate::leader_headers::LeaderHeaders;
use crate::metrics::HttpMetrics;
use crate::node::Node;
use crate::route::Route;
use crate::{admin, answer, backup, health, locks, members, metrics, snapshot};

/// What handlers share.
pub(crate) struct Shared<N> {
    pub(crate) node: N,
    pub(crate) config: ServerConfig,
    pub(crate) registry: Registry,
    pub(crate) http_metrics: HttpMetrics,
    /// Room for requests that wait for a lock.
    pub(crate) waits: Semaphore,
    leader_headers: LeaderHeaders,
}

impl<N: Node> Shared<N> {
    pub(crate) fn new(node: N, config: ServerConfig) -> Self {
        let mut registry = Registry::default();
        let http_metrics = HttpMetrics::register(&mut registry);
        let of_the_node = registry.sub_registry_with_prefix("lockstead");
        node.register_metrics(of_the_node);
        of_the_node.register_collector(Box::new(ClusterMetrics(node.clone())));
        let waits = Semaphore::new(waits_max(config.connections_max));
        Self { node, config, registry, http_metrics, waits, leader_headers: LeaderHeaders::default() }
    }
}

/// The router, and what each answer gets on top of it.
pub(crate) struct HttpService<N> {
    router: Router,
    pub(crate) shared: Arc<Shared<N>>,
}

impl<N> Clone for HttpService<N> {
    fn clone(&self) -> Self {
        Self { router: self.router.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<N: Node> HttpService<N> {
    pub(crate) fn new(shared: Arc<Shared<N>>) -> Self {
        let router = Router::new()
            .route(Route::Acquire.path(), post(locks::acquire::<N>))
            .route(Route::Release.path(), post(locks::release::<N>))
            .route(Route::Renew.path(), post(locks::renew::<N>))
            .route(Route::Get.path(), get(locks::get::<N>))
            .route(Route::Cluster.path(), get(admin::cluster::<N>))
            .route(Route::Snapshot.path(), post(snapshot::snapshot::<N>))
            .route(Route::Backup.path(), get(backup::backup::<N>))
            .route(Route::Members.path(), post(members::add::<N>))
            .route(Route::Member.path(), put(members::set_addresses::<N>).delete(members::remove::<N>))
            .route(Route::Promote.path(), post(members::promote::<N>))
            .route(Route::Demote.path(), post(members::demote::<N>))
            .route(Route::Leader.path(), post(members::lead::<N>))
            .route(Route::Livez.path(), get(health::livez))
            .route(Route::Readyz.path(), get(health::readyz::<N>))
            .route(Route::Metrics.path(), get(metrics::metrics::<N>))
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(not_found)
            .with_state(Arc::clone(&shared));
        Self { router, shared }
    }

    /// Answers one request of the connection whose activity is given.
    pub(crate) async fn answer(mut self, activity: Arc<Activity>, request: Request<Incoming>) -> Response {
        activity.begin();
        let started = tokio::time::Instant::now();
        let route = Route::of(request.uri().path());
        let mut response = match self.refuse_of_another_cluster(&request) {
            Some(refusal) => refusal,
            None => unless_cut(&activity, self.router.call(request)).await,
        };
        self.finish(route, started.elapsed(), &activity, &mut response);
        activity.end();
        response
    }

    /// A request may say for which cluster it is meant, in hex digits of either case.
    fn refuse_of_another_cluster(&self, request: &Request<Incoming>) -> Option<Response> {
        let meant = request.headers().get(CLUSTER_HEADER)?.as_bytes();
        let mine = self.shared.node.cluster_id()?.to_string();
        let message = || format!("this node belongs to cluster {mine}");
        let is_mine = meant.eq_ignore_ascii_case(mine.as_bytes());
        (!is_mine).then(|| answer::error(&ErrorBody::new(ErrorCode::WrongCluster, message())))
    }

    fn finish(&self, route: Route, took: Duration, activity: &Activity, response: &mut Response) {
        let status = response.status();
        self.shared.leader_headers.add(&self.shared.node, response.headers_mut());
        if matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE) {
            // The rest of the body is not wanted.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            activity.leave_unread();
        }
        self.shared.http_metrics.answered(route, status, took);
        // A node that says it is not ready has not failed.
        if status.is_server_error() && route != Route::Readyz {
            info!(route = route.path(), status = status.as_u16(), ?took, "request failed");
        } else {
            debug!(route = route.path(), status = status.as_u16(), ?took, "request answered");
        }
    }
}

/// The answer, or `outcome_unknown` once the shutdown does not wait any longer.
async fn unless_cut(activity: &Activity, call: impl Future<Output = Result<Response, Infallible>>) -> Response {
    let mut call = pin!(call);
    poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(Ok(response)) => Poll::Ready(response),
        Poll::Pending if activity.is_cut() => {
            Poll::Ready(answer::error(&answer::unavailable(SubmitError::OutcomeUnknown)))
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn not_found() -> Response {
    answer::error(&ErrorBody::new(ErrorCode::NotFound, "there is no such path"))
}

async fn method_not_allowed() -> Response {
    answer::error(&ErrorBody::new(ErrorCode::MethodNotAllowed, "this path takes other methods, see the header allow"))
}
