//! A client that insists: it goes from node to node until one of them decides.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::{Api, fresh_request_id};
use super::clock::{LATE_MAX, NOISE, as_ms, ms, now};
use super::http::Answer;

/// Between two tries that found nobody who decides.
const BETWEEN_TRIES: Duration = ms(20);

/// A grant as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) fence: u64,
    pub(crate) ttl: Duration,
    /// Before the try that was answered went out.
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    waited: Duration,
    expires_in: Duration,
}

impl Held {
    #[track_caller]
    pub(crate) fn from(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        Self {
            name: answer.string("name").to_owned(),
            token: answer.string("token").to_owned(),
            fence: answer.number("fence"),
            ttl: ms(answer.number("ttl_ms")),
            sent: answer.sent,
            received: answer.received,
            waited: ms(answer.number("waited_ms")),
            expires_in: ms(answer.number("expires_in_ms")),
        }
    }

    /// Until when a client may count on the hold, by the rule for clients: from before the answered try went out,
    /// less 1 % of the TTL and 0.1 % of the wait, 10 ms at least.
    pub(crate) fn client_deadline(&self) -> Instant {
        let margin = (self.ttl / 100 + self.waited / 1_000).max(ms(10));
        (self.sent + self.waited + self.expires_in).checked_sub(margin).expect("a moment after the machine's start")
    }

    /// The earliest moment at which the hold may end by itself.
    pub(crate) fn earliest_end(&self) -> Instant {
        self.sent + self.waited + self.expires_in
    }

    /// The latest moment at which its deadline can lie, if its time never stands still.
    pub(crate) fn latest_end(&self) -> Instant {
        self.received + self.ttl
    }

    /// This grant came after another of the same lock that ended by itself: with a higher fence, never early, and late
    /// by no more than the rule allows for the time without a leader.
    #[track_caller]
    pub(crate) fn must_follow(&self, earlier: &Self, leaderless: Duration) {
        assert!(self.fence > earlier.fence, "the fence did not rise: {earlier:?}, then {self:?}");
        assert!(self.received >= earlier.earliest_end(), "early: {earlier:?}, then {self:?}");
        let late = self.received.saturating_duration_since(earlier.latest_end());
        let late_max = leaderless + LATE_MAX + NOISE;
        assert!(late <= late_max, "late by {late:?}, {leaderless:?} without a leader: {earlier:?}, then {self:?}");
    }

    /// The same hold after a renewal.
    #[track_caller]
    pub(crate) fn renewed(&self, answer: &Answer) -> Self {
        assert_eq!((answer.status, answer.number("fence")), (200, self.fence), "{answer:?}");
        Self {
            ttl: ms(answer.number("ttl_ms")),
            sent: answer.sent,
            received: answer.received,
            waited: Duration::ZERO,
            expires_in: ms(answer.number("expires_in_ms")),
            ..self.clone()
        }
    }
}

/// Asks one node after the other until one decides: anything but a 503 or a lost connection.
///
/// # Panics
/// When none does in time.
#[track_caller]
pub(crate) fn insist(apis: &[Api], within: Duration, ask: impl Fn(&Api) -> io::Result<Answer>) -> Answer {
    let until = now() + within;
    for api in apis.iter().cycle() {
        let last = match ask(api) {
            Ok(answer) if answer.status != 503 => return answer,
            undecided => undecided,
        };
        assert!(now() < until, "nobody decided within {within:?}; last: {last:?}");
        thread::sleep(BETWEEN_TRIES);
    }
    unreachable!("no nodes were given")
}

/// Waits for a lock as a patient client does: with one request id, and with the time it has waited, over lost nodes
/// and leaders, until it gets it.
///
/// # Panics
/// When it does not in time.
#[track_caller]
pub(crate) fn acquire_at_last(apis: &[Api], name: &str, ttl: Duration, within: Duration) -> Held {
    acquire_by_tries(apis, name, ttl, within, within)
}

/// As [`acquire_at_last`], for a client that asks another node when one has not answered for a while.
///
/// # Panics
/// When it does not get the lock in time.
#[track_caller]
pub(crate) fn acquire_by_tries(apis: &[Api], name: &str, ttl: Duration, within: Duration, per_try: Duration) -> Held {
    let begin = now();
    let mut body = json!({"name": name, "ttl_ms": as_ms(ttl), "request_id": fresh_request_id()});
    let mut last = None;
    for api in apis.iter().cycle() {
        let queued = begin.elapsed();
        assert!(queued < within, "{name} was not granted within {within:?}; last: {last:?}");
        body["queued_ms"] = as_ms(queued).into();
        body["wait_ms"] = as_ms(within.saturating_sub(queued).min(per_try)).into();
        match api.acquire(&body) {
            Ok(answer) if answer.status == 200 => return Held::from(&answer),
            Ok(answer) if answer.status == 503 || answer.code() == "held" => last = Some(Ok(answer)),
            Ok(answer) => panic!("{name} was refused: {answer:?}"),
            Err(error) => last = Some(Err(error)),
        }
        thread::sleep(BETWEEN_TRIES);
    }
    unreachable!("no nodes were given")
}

/// Acquires a free lock.
#[track_caller]
pub(crate) fn take(api: &Api, name: &str, ttl: Duration) -> Held {
    let body = json!({"name": name, "ttl_ms": as_ms(ttl)});
    Held::from(&api.acquire(&body).expect("an answer"))
}

/// Acquires a free lock from whoever decides.
#[track_caller]
pub(crate) fn take_from_any(apis: &[Api], name: &str, ttl: Duration) -> Held {
    let body = json!({"name": name, "ttl_ms": as_ms(ttl), "request_id": fresh_request_id()});
    Held::from(&insist(apis, ms(15_000), |api| api.acquire(&body)))
}

/// A body for an acquire that waits.
pub(crate) fn waiting_body(name: &str, ttl: Duration, wait: Duration) -> Value {
    json!({"name": name, "ttl_ms": as_ms(ttl), "wait_ms": as_ms(wait)})
}
