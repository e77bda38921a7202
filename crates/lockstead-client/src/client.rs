//! The calls.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use lockstead_api::{
    ACQUIRE_PATH, AcquireAnswer, BACKUP_PATH, CLUSTER_PATH, ClusterAnswer, ErrorBody, ErrorCode, GET_PATH, GetAnswer,
    RELEASE_PATH, RENEW_PATH, ReleaseAnswer, ReleaseBody, RenewAnswer, RenewBody, Secret,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::endpoint::Endpoint;
use crate::error::{CallError, Refusal};
use crate::exchange::{Call, Exchange, Said};
use crate::lease::Lease;
use crate::outcome::{AcquireOutcome, GetOutcome, Granted, Held, ReleaseOutcome, RenewOutcome, Renewed, Reply};
use crate::random;
use crate::request::{Acquire, Claim, Freshness, Renew, whole_ms};
use crate::route::Router;
use crate::tries::{Decided, Plan, Tries};

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// For how long beyond its wait a call begins tries. Default 10 s: enough for a node that hangs and one change of
    /// leader. More rides out longer trouble, less reports it sooner. The last try is heard out for up to 6 s more (for
    /// as long again, if less than that is given), so that it ends in what the node says: a node without a leader says
    /// after 5 s that nothing was changed, and with less than 6 s that may go unheard.
    pub timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10) }
    }
}

/// A client of one cluster. It follows the leader, goes on to the next endpoint on trouble, and repeats what may safely
/// be repeated.
///
/// Dropping the future of a call drops its connection, by which the cluster withdraws the request: a waiting acquire
/// leaves the queue, a grant that raced the drop is given back or ends with its TTL.
#[derive(Debug)]
pub struct Client {
    exchange: Exchange,
    router: Router,
    config: ClientConfig,
}

impl Client {
    /// A client that knows these nodes; others it learns of as leaders. Connects to nothing yet.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, config: ClientConfig) -> Self {
        Self { exchange: Exchange::new(), router: Router::new(endpoints), config }
    }

    /// The nodes it was given.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        self.router.endpoints()
    }

    /// Takes a lock, trying for `wait` + [`ClientConfig::timeout`]. All tries carry one request id and the time already
    /// waited, so a lost answer costs neither the grant nor the place in the queue.
    ///
    /// # Errors
    /// [`CallError`]; an unknown outcome names the request id.
    pub async fn acquire(&self, request: &Acquire) -> Result<Reply<AcquireOutcome>, CallError> {
        let request_id = match &request.request_id {
            Some(request_id) => request_id.clone(),
            None => random::request_id().map_err(|error| CallError::NoRandomness(error.to_string()))?,
        };
        let mut tries = Tries::new(&self.exchange, &self.router, request.wait.length(), self.config.timeout);
        self.acquire_in_turns(request, &request_id, &mut tries)
            .await
            .map_err(|error| with_request_id(error, request_id))
    }

    /// Requests of at most 300 s of waiting each, until the whole wait is over.
    async fn acquire_in_turns(
        &self,
        request: &Acquire,
        request_id: &str,
        tries: &mut Tries<'_>,
    ) -> Result<Reply<AcquireOutcome>, CallError> {
        loop {
            let asked_at = tries.elapsed();
            let decided = tries.until_decided(|waited| acquire_plan(request, request_id, waited)).await?;
            let reply = acquire_reply(&decided, request_id)?;
            match reply.outcome {
                AcquireOutcome::Held(_) if request.wait.next(asked_at).more => {}
                _ => return Ok(reply),
            }
        }
    }

    /// Ends a hold. After a try with an unknown outcome, "not holder" counts as released.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn release(&self, name: &str, token: &Secret) -> Result<Reply<ReleaseOutcome>, CallError> {
        let call = post::<ReleaseAnswer>(RELEASE_PATH, &ReleaseBody { name: name.to_owned(), token: token.clone() });
        let mut tries = self.tries();
        let decided = tries.until_decided(|_| plan(&call)).await?;
        let outcome = match decided.said.status {
            StatusCode::OK => ReleaseOutcome::Released,
            StatusCode::CONFLICT if tries.outcome_was_unknown() => not_holder(&decided, ReleaseOutcome::Released)?,
            StatusCode::CONFLICT => not_holder(&decided, ReleaseOutcome::NotHolder)?,
            _ => return Err(refused(&decided)),
        };
        Ok(Reply { outcome, body: decided.said.body })
    }

    /// Prolongs a hold.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn renew(&self, request: &Renew) -> Result<Reply<RenewOutcome>, CallError> {
        let call = post::<RenewAnswer>(RENEW_PATH, &renew_body(request));
        let decided = self.tries().until_decided(|_| plan(&call)).await?;
        let outcome = match decided.said.status {
            StatusCode::OK => RenewOutcome::Renewed(renewed(&decided)?),
            StatusCode::CONFLICT => not_holder(&decided, RenewOutcome::NotHolder)?,
            _ => return Err(refused(&decided)),
        };
        Ok(Reply { outcome, body: decided.said.body })
    }

    /// Says who holds a lock and who waits for it.
    ///
    /// # Errors
    /// [`CallError`], never an unknown outcome.
    pub async fn get(&self, name: &str, freshness: Freshness) -> Result<Reply<GetOutcome>, CallError> {
        let call = get::<GetAnswer>(get_path(name, freshness));
        let decided = self.tries().until_decided(|_| plan(&call)).await.map_err(of_a_read)?;
        let outcome = match decided.said.status {
            StatusCode::OK => GetOutcome::Held(read::<GetAnswer>(&decided)?),
            StatusCode::NOT_FOUND => with_code(&decided, ErrorCode::NotHeld, GetOutcome::NotHeld)?,
            _ => return Err(refused(&decided)),
        };
        Ok(Reply { outcome, body: decided.said.body })
    }

    /// The cluster as the first node that answers sees it.
    ///
    /// # Errors
    /// [`CallError`], never an unknown outcome.
    pub async fn cluster(&self) -> Result<Reply<ClusterAnswer>, CallError> {
        let call = get::<ClusterAnswer>(CLUSTER_PATH.to_owned());
        let decided = self.tries().until_decided(|_| plan(&call)).await.map_err(of_a_read)?;
        cluster_reply(&decided)
    }

    /// A backup by the first node that has one to give, as it is to lie in a file.
    ///
    /// # Errors
    /// [`CallError`], never an unknown outcome.
    pub async fn backup(&self) -> Result<Bytes, CallError> {
        let call = Call { check: |_| Ok(()), ..get::<()>(BACKUP_PATH.to_owned()) };
        let decided = self.tries().until_decided(|_| plan(&call)).await.map_err(of_a_read)?;
        match decided.said.status {
            StatusCode::OK => Ok(decided.said.body),
            _ => Err(refused(&decided)),
        }
    }

    /// The cluster as one node sees it, by one try within `time_max`.
    ///
    /// # Errors
    /// [`CallError`], never an unknown outcome.
    pub async fn cluster_at(&self, endpoint: &Endpoint, time_max: Duration) -> Result<Reply<ClusterAnswer>, CallError> {
        let said = self.one_try(endpoint, CLUSTER_PATH, time_max).await?;
        cluster_reply(&Decided { said, endpoint: endpoint.clone() })
    }

    /// Whether one node is ready to serve, by one try within `time_max`.
    ///
    /// # Errors
    /// [`CallError::Unreachable`].
    pub async fn ready_at(&self, endpoint: &Endpoint, time_max: Duration) -> Result<bool, CallError> {
        Ok(self.one_try(endpoint, "/readyz", time_max).await?.status == StatusCode::OK)
    }

    async fn one_try(&self, endpoint: &Endpoint, path: &str, time_max: Duration) -> Result<Said, CallError> {
        let said = self.exchange.send(endpoint, &get::<()>(path.to_owned()), None, time_max).await;
        said.map_err(|silence| CallError::Unreachable { last: format!("{endpoint}: {silence}") })
    }

    fn tries(&self) -> Tries<'_> {
        self.tries_for(Duration::ZERO)
    }

    /// The tries of a call that waits at the node.
    pub(crate) fn tries_for(&self, wait: Duration) -> Tries<'_> {
        Tries::new(&self.exchange, &self.router, Some(wait), self.config.timeout)
    }
}

fn acquire_plan(request: &Acquire, request_id: &str, waited: Duration) -> Plan {
    Plan {
        call: post::<AcquireAnswer>(ACQUIRE_PATH, &request.body(request_id, waited)),
        wait: request.wait.next(waited).ask,
    }
}

fn acquire_reply(decided: &Decided, request_id: &str) -> Result<Reply<AcquireOutcome>, CallError> {
    let outcome = match decided.said.status {
        StatusCode::OK => AcquireOutcome::Granted(granted(decided, request_id)?),
        StatusCode::CONFLICT => held(decided)?,
        StatusCode::TOO_MANY_REQUESTS => limit_exceeded(decided)?,
        _ => return Err(refused(decided)),
    };
    Ok(Reply { outcome, body: decided.said.body.clone() })
}

fn granted(decided: &Decided, request_id: &str) -> Result<Granted, CallError> {
    let answer: AcquireAnswer = read(decided)?;
    let lease = Lease::new(decided.said.sent, answer.waited_ms, answer.expires_in_ms, answer.ttl_ms);
    Ok(Granted { answer, lease, request_id: request_id.to_owned() })
}

fn held(decided: &Decided) -> Result<AcquireOutcome, CallError> {
    let ErrorBody { error } = with_code(decided, ErrorCode::Held, read(decided)?)?;
    let (holders, queue_len) = (error.holders.unwrap_or_default(), error.queue_len.unwrap_or(0));
    Ok(AcquireOutcome::Held(Held { holders, queue_len, hold_off_ms: error.hold_off_ms.unwrap_or(0) }))
}

fn limit_exceeded(decided: &Decided) -> Result<AcquireOutcome, CallError> {
    let ErrorBody { error } = with_code(decided, ErrorCode::LimitExceeded, read(decided)?)?;
    let (limit, current) = (error.limit.unwrap_or(0), error.current.unwrap_or(0));
    Ok(AcquireOutcome::LimitExceeded { limit, current })
}

fn renew_body(request: &Renew) -> RenewBody {
    let (token, owner) = match &request.claim {
        Claim::Token(token) => (Some(token.clone()), None),
        Claim::Owner(owner) => (None, Some(owner.clone())),
    };
    RenewBody { name: request.name.clone(), token, owner, ttl_ms: request.ttl.map(whole_ms) }
}

fn renewed(decided: &Decided) -> Result<Renewed, CallError> {
    let answer: RenewAnswer = read(decided)?;
    let lease = Lease::new(decided.said.sent, 0, answer.expires_in_ms, answer.ttl_ms);
    Ok(Renewed { answer, lease })
}

fn cluster_reply(decided: &Decided) -> Result<Reply<ClusterAnswer>, CallError> {
    match decided.said.status {
        StatusCode::OK => Ok(Reply { outcome: read(decided)?, body: decided.said.body.clone() }),
        _ => Err(refused(decided)),
    }
}

fn not_holder<T>(decided: &Decided, outcome: T) -> Result<T, CallError> {
    with_code(decided, ErrorCode::NotHolder, outcome)
}

/// The outcome if the answer carries this code; else it is a refusal of another kind.
fn with_code<T>(decided: &Decided, code: ErrorCode, outcome: T) -> Result<T, CallError> {
    if read::<ErrorBody>(decided)?.error.code == code { Ok(outcome) } else { Err(refused(decided)) }
}

pub(crate) fn refused(decided: &Decided) -> CallError {
    let (status, raw) = (decided.said.status.as_u16(), decided.said.body.clone());
    match serde_json::from_slice(&raw) {
        Ok(body) => CallError::BadRequest(Refusal { status, body, raw }),
        Err(_) => not_understood(decided, format!("HTTP {status} without an error in JSON")),
    }
}

pub(crate) fn read<T: DeserializeOwned>(decided: &Decided) -> Result<T, CallError> {
    serde_json::from_slice(&decided.said.body).map_err(|error| not_understood(decided, error.to_string()))
}

fn not_understood(decided: &Decided, why: String) -> CallError {
    CallError::NotUnderstood { endpoint: decided.endpoint.to_string(), why }
}

fn with_request_id(error: CallError, request_id: String) -> CallError {
    match error {
        CallError::OutcomeUnknown { last, .. } => CallError::OutcomeUnknown { request_id: Some(request_id), last },
        other => other,
    }
}

/// A read changes nothing, so there is no outcome to be unknown.
fn of_a_read(error: CallError) -> CallError {
    match error {
        CallError::OutcomeUnknown { last, .. } => CallError::NoQuorum { last },
        other => other,
    }
}

fn plan(call: &Call) -> Plan {
    Plan { call: call.clone(), wait: Duration::ZERO }
}

/// Asks for an answer of type `T`.
pub(crate) fn get<T: DeserializeOwned>(path: String) -> Call {
    Call { method: Method::GET, path, body: Bytes::new(), if_match: None, check: json::<T> }
}

fn post<T: DeserializeOwned>(path: &str, body: &impl Serialize) -> Call {
    let body = serde_json::to_vec(body).unwrap_or_default();
    Call { method: Method::POST, path: path.to_owned(), body: body.into(), if_match: None, check: json::<T> }
}

/// An answer of type `T` is expected.
pub(crate) fn json<T: DeserializeOwned>(body: &Bytes) -> Result<(), String> {
    serde_json::from_slice::<T>(body).map(drop).map_err(|error| error.to_string())
}

fn get_path(name: &str, freshness: Freshness) -> String {
    let consistency = match freshness {
        Freshness::Linearizable => "linearizable",
        Freshness::Stale => "stale",
    };
    format!("{GET_PATH}?name={}&consistency={consistency}", percent_encoded(name))
}

/// Escapes every byte that is not unreserved (RFC 3986, section 2.3).
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => write!(encoded, "%{byte:02X}").unwrap_or_default(),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_survives_in_a_query() {
        assert_eq!(percent_encoded("a/b c%2F+&\n\0é~"), "a%2Fb%20c%252F%2B%26%0A%00%C3%A9~");
        assert_eq!(get_path("..", Freshness::Stale), "/v1/locks/get?name=..&consistency=stale");
    }
}
