//! One call as a series of tries.

use std::time::Duration;

use hyper::StatusCode;
use lockstead_api::{ErrorBody, ErrorCode, REQUEST_GRACE_MS};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::exchange::{Call, Exchange, Said, Silence};
use crate::route::Router;

/// How long after the end of its wait a request may be unanswered: the node's own limit and a second for the way.
const ANSWER_GRACE: Duration = Duration::from_millis(REQUEST_GRACE_MS + 1_000);
const SAY_SO_AFTER: Duration = Duration::from_secs(1);

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

/// The tries of one call: node after node, with pauses, until one decides or the deadline comes.
pub(crate) struct Tries<'a> {
    exchange: &'a Exchange,
    router: &'a Router,
    started: Instant,
    deadline: Option<Instant>,
    backoff: Backoff,
    troubles: Troubles,
}

#[derive(Default)]
struct Troubles {
    since: Option<Instant>,
    said_so: bool,
    quorum_missed: bool,
    outcome_unknown: bool,
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
    /// The node belongs to another cluster than the ones before.
    OtherCluster { expected: String, found: String },
}

impl<'a> Tries<'a> {
    /// `time_max`: `None` for ever.
    pub(crate) fn new(exchange: &'a Exchange, router: &'a Router, time_max: Option<Duration>) -> Self {
        let started = Instant::now();
        let deadline = time_max.and_then(|time_max| started.checked_add(time_max));
        Self { exchange, router, started, deadline, backoff: Backoff::new(), troubles: Troubles::default() }
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
            match self.once(&endpoint, &plan(self.elapsed())).await {
                Ok(said) => return Ok(self.decided(said, endpoint)),
                Err(Trouble::OtherCluster { expected, found }) => {
                    return Err(CallError::OtherCluster { endpoint: endpoint.to_string(), expected, found });
                }
                Err(trouble) => self.note(&endpoint, &trouble),
            }
            self.pause().await?;
        }
    }

    async fn once(&self, endpoint: &Endpoint, plan: &Plan) -> Result<Said, Trouble> {
        let cluster = self.router.cluster();
        let said = self.exchange.send(endpoint, &plan.call, cluster.as_deref(), self.time_for(plan.wait)).await?;
        if let Some(found) = &said.cluster {
            let expected = self.router.learn_cluster(found);
            if expected != *found {
                return Err(Trouble::OtherCluster { expected, found: found.clone() });
            }
        }
        if let Some(leader) = &said.leader {
            self.router.learn_leader(leader);
        }
        match trouble_in(&said) {
            Some(trouble) => Err(trouble),
            None => Ok(said),
        }
    }

    fn time_for(&self, wait: Duration) -> Duration {
        let time_max = wait.saturating_add(ANSWER_GRACE);
        self.deadline.map_or(time_max, |deadline| time_max.min(deadline.saturating_duration_since(Instant::now())))
    }

    fn decided(&mut self, said: Said, endpoint: Endpoint) -> Decided {
        self.backoff = Backoff::new();
        self.troubles.since = None;
        Decided { said, endpoint }
    }

    fn note(&mut self, endpoint: &Endpoint, trouble: &Trouble) {
        self.router.failed(endpoint);
        let why = match trouble {
            Trouble::NotSent(why) => why,
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
        self.say_so_if_it_lasts();
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
        tokio::time::sleep_until(until).await;
        Ok(())
    }

    fn gave_up(&self) -> CallError {
        let last = self.troubles.last.clone();
        match &self.troubles {
            Troubles { outcome_unknown: true, .. } => CallError::OutcomeUnknown { request_id: None, last },
            Troubles { quorum_missed: true, .. } => CallError::NoQuorum { last },
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

fn trouble_in(said: &Said) -> Option<Trouble> {
    if !said.status.is_server_error() && said.status != StatusCode::REQUEST_TIMEOUT {
        return None;
    }
    let Ok(ErrorBody { error }) = serde_json::from_slice(&said.body) else {
        return Some(Trouble::Unknown(format!("HTTP {}", said.status)));
    };
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
