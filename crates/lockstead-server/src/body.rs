//! Reads request bodies within their bounds, and refuses what stands where nothing may stand.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use lockstead_api::{ErrorBody, ErrorCode};
use tokio::time::timeout;

use crate::config::ServerConfig;

/// The body of a request that must be declared as JSON and come without a query.
pub(crate) async fn read_json(config: &ServerConfig, request: Request) -> Result<Bytes, ErrorBody> {
    refuse_query(request.uri())?;
    require_json(request.headers())?;
    let body = request.into_body();
    let declared_bytes = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared_bytes > config.body_bytes_max {
        return Err(too_large(config));
    }
    // The timer is only set if the body is not there yet.
    match timeout(config.body_timeout, collect(config, body)).await {
        Ok(collected) => collected,
        Err(_) => Err(ErrorBody::new(ErrorCode::RequestTimeout, "the body did not arrive in time")),
    }
}

/// As [`read_json`], but a body may be missing: then it need not be declared.
pub(crate) async fn read_json_or_nothing(config: &ServerConfig, request: Request) -> Result<Bytes, ErrorBody> {
    if request.body().is_end_stream() {
        refuse_query(request.uri())?;
        return Ok(Bytes::new());
    }
    read_json(config, request).await
}

/// Takes a request that says nothing beside its path: no query, and an empty body or an empty object.
pub(crate) async fn read_nothing(config: &ServerConfig, request: Request) -> Result<(), ErrorBody> {
    refuse_query(request.uri())?;
    let Ok(body) = timeout(config.body_timeout, collect(config, request.into_body())).await else {
        return Err(ErrorBody::new(ErrorCode::RequestTimeout, "the body did not arrive in time"));
    };
    match body?.trim_ascii() {
        b"" | b"{}" => Ok(()),
        _ => Err(ErrorBody::new(ErrorCode::InvalidField, "this path takes no body")),
    }
}

/// Refuses any query: a field that stands there would be ignored otherwise.
pub(crate) fn refuse_query(uri: &Uri) -> Result<(), ErrorBody> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(()) };
    let field = query.split(['=', '&']).next().unwrap_or(query);
    let mut body = ErrorBody::new(ErrorCode::InvalidField, "this path takes no query");
    body.error.field = Some(field.to_owned());
    Err(body)
}

async fn collect(config: &ServerConfig, body: Body) -> Result<Bytes, ErrorBody> {
    match Limited::new(body, config.body_bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(config)),
        Err(_) => Err(ErrorBody::new(ErrorCode::InvalidJson, "the body could not be read to its end")),
    }
}

fn too_large(config: &ServerConfig) -> ErrorBody {
    let mut body = ErrorBody::new(ErrorCode::TooLarge, format!("a body has at most {} bytes", config.body_bytes_max));
    body.error.limit = u64::try_from(config.body_bytes_max).ok();
    body
}

fn require_json(headers: &HeaderMap) -> Result<(), ErrorBody> {
    let declared = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let media_type = declared.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media_type.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    let message = "the body must be declared as JSON; with curl: -H 'content-type: application/json'";
    Err(ErrorBody::new(ErrorCode::UnsupportedMediaType, message))
}
