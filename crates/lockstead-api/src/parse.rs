//! Bodies, parsed once at the edge into what the core understands.
//!
//! Integers are integers only (`10.0`, `1e3` and `"10"` are refused), `null` counts as missing, no field stands twice.

use lockstead_core::{
    Acquire, LockKey, LockName, Metadata, NameError, OwnerName, Proof, Release, Renew, RequestId, Token, Ttl,
};

use crate::error::{ErrorBody, ErrorCode};
use crate::fields::{Value, split};
use crate::{QUEUED_MS_MAX, WAIT_MS_MAX};

/// Reads the body of acquire. `ttl_ms_max` is the longest TTL that the server grants, in milliseconds.
///
/// # Errors
/// What is wrong, as the body of a 400: the first of bad JSON, an unknown field, a value that is not allowed.
pub fn parse_acquire(body: &[u8], ttl_ms_max: u64) -> Result<Acquire, ErrorBody> {
    const NAMES: [&str; 7] = ["name", "ttl_ms", "wait_ms", "owner", "request_id", "queued_ms", "metadata"];
    let [name, ttl_ms, wait_ms, owner, request_id, queued_ms, metadata] = split(body, &NAMES)?;
    Ok(Acquire {
        lock: lock(name)?,
        ttl: ttl(ttl_ms, ttl_ms_max)?,
        wait_ms: millis(wait_ms, "wait_ms", ErrorCode::InvalidWait, WAIT_MS_MAX)?,
        queued_ms: millis(queued_ms, "queued_ms", ErrorCode::InvalidQueued, QUEUED_MS_MAX)?,
        owner: owner.map(owner_name).transpose()?,
        request_id: request_id.map(request_id_text).transpose()?,
        metadata: metadata.map(labels).transpose()?.unwrap_or_default(),
    })
}

/// Reads the body of release.
///
/// # Errors
/// As [`parse_acquire`]. A token that is a text, but no token, is no error: it matches nothing.
pub fn parse_release(body: &[u8]) -> Result<Release, ErrorBody> {
    let [name, token] = split(body, &["name", "token"])?;
    let lock = lock(name)?;
    let token = token.ok_or_else(|| required(ErrorCode::InvalidToken, "token"))?;
    Ok(Release { lock, token: token_text(token)? })
}

/// Reads the body of renew. `ttl_ms_max` is the longest TTL that the server grants, in milliseconds.
///
/// # Errors
/// As [`parse_release`]; `invalid_token` unless there is exactly one of `token` and `owner`.
pub fn parse_renew(body: &[u8], ttl_ms_max: u64) -> Result<Renew, ErrorBody> {
    let [name, token, owner, ttl_ms] = split(body, &["name", "token", "owner", "ttl_ms"])?;
    Ok(Renew { lock: lock(name)?, proof: proof(token, owner)?, ttl: ttl(ttl_ms, ttl_ms_max)? })
}

fn lock(name: Option<Value<'_>>) -> Result<LockKey, ErrorBody> {
    let name = name.ok_or_else(|| required(ErrorCode::InvalidName, "name"))?;
    let name = text(name, "name", ErrorCode::InvalidName, LockName::parse)?;
    Ok(LockKey::in_default(&name))
}

fn ttl(ttl_ms: Option<Value<'_>>, ttl_ms_max: u64) -> Result<Ttl, ErrorBody> {
    let refused = || {
        let allowed = format!(
            "an integer from {} to {ttl_ms_max}, or 0 or less for the default of {} (milliseconds)",
            Ttl::MIN_MS,
            Ttl::DEFAULT.as_ms()
        );
        ErrorBody::field(ErrorCode::InvalidTtl, "ttl_ms", allowed)
    };
    let asked_ms = ttl_ms.map(|value| value.integer().ok_or_else(refused)).transpose()?;
    Ttl::from_request(asked_ms, ttl_ms_max).map_err(|_| refused())
}

fn millis(value: Option<Value<'_>>, field: &str, code: ErrorCode, max: u64) -> Result<u64, ErrorBody> {
    let Some(value) = value else { return Ok(0) };
    value
        .integer()
        .and_then(|ms| u64::try_from(ms).ok())
        .filter(|ms| *ms <= max)
        .ok_or_else(|| ErrorBody::field(code, field, format!("an integer from 0 to {max} (milliseconds)")))
}

fn owner_name(owner: Value<'_>) -> Result<OwnerName, ErrorBody> {
    text(owner, "owner", ErrorCode::InvalidOwner, OwnerName::parse)
}

fn request_id_text(request_id: Value<'_>) -> Result<RequestId, ErrorBody> {
    text(request_id, "request_id", ErrorCode::InvalidRequestId, RequestId::parse)
}

fn token_text(token: Value<'_>) -> Result<Option<Token>, ErrorBody> {
    let text = token.text().ok_or_else(|| ErrorBody::field(ErrorCode::InvalidToken, "token", "a text"))?;
    Ok(Token::parse(&text))
}

fn proof(token: Option<Value<'_>>, owner: Option<Value<'_>>) -> Result<Proof, ErrorBody> {
    match (token, owner) {
        (Some(token), None) => token_text(token).map(Proof::Token),
        (None, Some(owner)) => owner_name(owner).map(Proof::Owner),
        (Some(_), Some(_)) => Err(ErrorBody::field(ErrorCode::InvalidToken, "token", "absent beside owner")),
        (None, None) => Err(ErrorBody::field(ErrorCode::InvalidToken, "token", "given (required, unless owner is)")),
    }
}

fn labels(metadata: Value<'_>) -> Result<Metadata, ErrorBody> {
    let refused = |error: NameError| ErrorBody::field(ErrorCode::InvalidMetadata, "metadata", error.allowed);
    let pairs = metadata
        .text_pairs()
        .ok_or_else(|| ErrorBody::field(ErrorCode::InvalidMetadata, "metadata", "an object whose values are texts"))?;
    Metadata::parse(pairs).map_err(refused)
}

fn text<T>(
    value: Value<'_>,
    field: &str,
    code: ErrorCode,
    parse: impl Fn(&str) -> Result<T, NameError>,
) -> Result<T, ErrorBody> {
    let text = value.text().ok_or_else(|| ErrorBody::field(code, field, "a text of valid Unicode"))?;
    parse(&text).map_err(|error| ErrorBody::field(code, field, error.allowed))
}

fn required(code: ErrorCode, field: &str) -> ErrorBody {
    ErrorBody::field(code, field, "given (required)")
}

#[cfg(test)]
#[path = "parse_tests.rs"]
pub(crate) mod tests;
