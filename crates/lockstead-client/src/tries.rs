//! One call as a series of tries.
//!
//! What a node was asked must not be asked of another cluster: a lock held in the one is free in the other. So a
//! request says for which cluster it is meant, once a node has said which that is, and one of another refuses it. An
//! answer says so; the first request, if its answer may be long in coming, is preceded by a question.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use lockstead_api::{ErrorBody, ErrorCode, REQUEST_GRACE_MS};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::get;
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::exchange::{Call, Exchange, Said, Silence};
use crate::route::Router;

/// How long after the end of its wait a request may be unanswered: the node's own limit and a second for the way. Cut
/// earlier, a node that would have said that nothing was changed leaves an unknown outcome.
const ANSWER_GRACE: Duration = Duration::from_millis(REQUEST_GRACE_MS + 1_000);
const SAY_SO_AFTER: Duration = Duration::from_secs(1);
/// How long a node may take to say to which cluster it belongs.
const WHO_TIME_MAX: Duration = Duration::from_secs(2);

/// A request and how long it waits at the node.
pub(crate) struct Plan {
    pub(crate) call: Call,
    pub(crate) wait: Duration,
}

/// An answer that settles a try.
pub(crate) struct Decided {
    pub(crate) said: Said,
    pub(crate) endpoint: Endpoint,
}

/// The tries of one call: node after node, with pauses, until one decides or the deadline comes. A try that has begun
/// before it is heard out.
pub(crate) struct Tries<'a> {
    exchange: &'a Exchange,
    router: &'a Router,
    started: Instant,
    /// No try begins after this.
    deadline: Option<Instant>,
    /// How long a try may be unanswered after the end of its wait, and the last one after the deadline.
    answer_grace: Duration,
    backoff: Backoff,
    troubles: Troubles,
}

#[derive(Default)]
struct Troubles {
    since: Option<Instant>,
    said_so: bool,
    quorum_missed: bool,
    outcome_unknown: bool,
    /// What answers there is no node, and why it is held for none.
    odd: Option<(String, String)>,
    /// How many of the last tries met such.
    odd_in_a_row: usize,
    last: String,
}

/// Why a try settles nothing.
enum Trouble {
    /// The node knows nothing of the request.
    NotSent(String),
    /// The node could not have it decided; nothing was changed.
    NoQuorum(String),
    /// It may or may not have taken effect.
    Unknown(String),
    /// What answers there is no node.
    Odd(String),
    /// The node belongs to another cluster than the ones before.
    OtherCluster { expected: String, found: String },
}

impl<'a> Tries<'a> {
    /// Tries of a call that waits for `wait`, `None` for ever; they begin until `timeout` after it.
    pub(crate) fn new(exchange: &'a Exchange, router: &'a Router, wait: Option<Duration>, timeout: Duration) -> Self {
        let started = Instant::now();
        let deadline = wait.and_then(|wait| started.checked_add(wait.saturating_add(timeout)));
        let answer_grace = if wait.is_some() { ANSWER_GRACE.min(timeout) } else { ANSWER_GRACE };
        Self {
            exchange,
            router,
            started,
            deadline,
            answer_grace,
            backoff: Backoff::new(),
            troubles: Troubles::default(),
        }
    }

    /// How long the call has lasted, in whole milliseconds: what is left of a wait is then whole, too.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Whether an earlier try may have taken effect.
    pub(crate) fn outcome_was_unknown(&self) -> bool {
        self.troubles.outcome_unknown
    }

    /// Tries until a node decides. `plan` makes the request from the time already spent.
    pub(crate) async fn until_decided(&mut self, plan: impl Fn(Duration) -> Plan) -> Result<Decided, CallError> {
        loop {
            let endpoint = self.router.pick().ok_or_else(no_endpoints)?;
            match self.once(&endpoint, &plan).await {
                Ok(said) => return Ok(self.decided(said, endpoint)),
                Err(Trouble::OtherCluster { expected, found }) => {
                    return Err(CallError::OtherCluster { endpoint: endpoint.to_string(), expected, found });
                }
                Err(trouble) => self.note(&endpoint, &trouble),
            }
            if self.troubles.odd_in_a_row >= self.router.endpoints().len() {
                return Err(self.gave_up());
            }
            self.pause().await?;
        }
    }

    async fn once(&self, endpoint: &Endpoint, plan: &impl Fn(Duration) -> Plan) -> Result<Said, Trouble> {
        // An answer that comes at once says it as well.
        if self.router.cluster().is_none() && !plan(self.elapsed()).wait.is_zero() {
            self.ask_for_the_cluster(endpoint).await?;
        }
        let (Plan { call, wait }, cluster) = (plan(self.elapsed()), self.router.cluster());
        let said = self.exchange.send(endpoint, &call, cluster.as_deref(), self.time_for(wait)).await?;
        self.learn_cluster(&said)?;
        if let Some(leader) = &said.leader {
            self.router.learn_leader(leader);
        }
        match trouble_in(&said, call.check) {
            Some(trouble) => Err(trouble),
            None => Ok(said),
        }
    }

    /// A node that does not answer this was not sent the request itself.
    async fn ask_for_the_cluster(&self, endpoint: &Endpoint) -> Result<(), Trouble> {
        let time_max = self.time_for(Duration::ZERO).min(WHO_TIME_MAX);
        let said = self.exchange.send(endpoint, &get::<()>("/livez".to_owned()), None, time_max).await;
        self.learn_cluster(&said.map_err(|silence| Trouble::NotSent(silence.to_string()))?)
    }

    fn learn_cluster(&self, said: &Said) -> Result<(), Trouble> {
        let Some(found) = &said.cluster else { return Ok(()) };
        let expected = self.router.learn_cluster(found);
        if expected == *found { Ok(()) } else { Err(Trouble::OtherCluster { expected, found: found.clone() }) }
    }

    fn time_for(&self, wait: Duration) -> Duration {
        let time_max = wait.saturating_add(self.answer_grace);
        let end = self.deadline.and_then(|deadline| deadline.checked_add(self.answer_grace));
        end.map_or(time_max, |end| time_max.min(end.saturating_duration_since(Instant::now())))
    }

    fn decided(&mut self, said: Said, endpoint: Endpoint) -> Decided {
        self.backoff = Backoff::new();
        self.troubles.since = None;
        Decided { said, endpoint }
    }

    fn note(&mut self, endpoint: &Endpoint, trouble: &Trouble) {
        self.router.failed(endpoint);
        self.troubles.odd_in_a_row =
            if matches!(trouble, Trouble::Odd(_)) { self.troubles.odd_in_a_row + 1 } else { 0 };
        let why = match trouble {
            Trouble::NotSent(why) => why,
            Trouble::Odd(why) => {
                self.troubles.odd = Some((endpoint.to_string(), why.clone()));
                why
            }
            Trouble::NoQuorum(why) => {
                self.troubles.quorum_missed = true;
                why
            }
            Trouble::Unknown(why) => {
                self.troubles.outcome_unknown = true;
                why
            }
            Trouble::OtherCluster { found, .. } => found,
        };
        self.troubles.last = format!("{endpoint}: {why}");
    }

    /// A change of leader is over in half a second; only what lasts longer is worth a line, and only one.
    fn say_so_if_it_lasts(&mut self) {
        let since = *self.troubles.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= SAY_SO_AFTER && !self.troubles.said_so {
            self.troubles.said_so = true;
            tracing::warn!("{}; trying on", self.troubles.last);
        }
    }

    async fn pause(&mut self) -> Result<(), CallError> {
        let until = Instant::now() + self.backoff.next_pause();
        if self.deadline.is_some_and(|deadline| until >= deadline) {
            return Err(self.gave_up());
        }
        self.say_so_if_it_lasts();
        tokio::time::sleep_until(until).await;
        Ok(())
    }

    fn gave_up(&self) -> CallError {
        let last = self.troubles.last.clone();
        match &self.troubles {
            Troubles { outcome_unknown: true, .. } => CallError::OutcomeUnknown { request_id: None, last },
            Troubles { quorum_missed: true, .. } => CallError::NoQuorum { last },
            Troubles { odd: Some((endpoint, why)), .. } => {
                CallError::NotUnderstood { endpoint: endpoint.clone(), why: why.clone() }
            }
            Troubles { .. } => CallError::Unreachable { last },
        }
    }
}

impl From<Silence> for Trouble {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::NotSent(why) => Self::NotSent(why),
            Silence::NoAnswer(why) => Self::Unknown(why),
        }
    }
}

fn trouble_in(said: &Said, check: fn(&Bytes) -> Result<(), String>) -> Option<Trouble> {
    if said.status == StatusCode::OK {
        return check(&said.body).err().map(Trouble::Odd);
    }
    let settles_nothing = said.status.is_server_error() || said.status == StatusCode::REQUEST_TIMEOUT;
    let Ok(ErrorBody { error }) = serde_json::from_slice(&said.body) else {
        let why = format!("HTTP {} without an error in JSON", said.status.as_u16());
        return Some(if settles_nothing { Trouble::Unknown(why) } else { Trouble::Odd(why) });
    };
    if !settles_nothing {
        return None;
    }
    let why = format!("{} ({})", error.message, error.code);
    Some(match error.code {
        ErrorCode::NoLeader | ErrorCode::CatchingUp | ErrorCode::Overloaded => Trouble::NoQuorum(why),
        ErrorCode::RequestTimeout => Trouble::NotSent(why),
        _ => Trouble::Unknown(why),
    })
}

fn no_endpoints() -> CallError {
    CallError::Unreachable { last: "no endpoint is configured".to_owned() }
}
