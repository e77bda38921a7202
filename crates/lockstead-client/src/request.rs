//! What is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use lockstead_api::{AcquireBody, Secret, WAIT_MS_MAX};

/// How long to wait for a lock that is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    #[default]
    No,
    /// This long. Longer than 300 s becomes several requests, which keep their place.
    UpTo(Duration),
    /// Until it is there, over any trouble.
    Forever,
}

/// Take a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquire {
    /// The lock: 1 to 1,024 bytes.
    pub name: String,
    /// How long the hold lasts without a renewal, in whole milliseconds; `None` means 30 s.
    pub ttl: Option<Duration>,
    /// How long to wait.
    pub wait: Wait,
    /// "Renew if mine, take if free, refuse otherwise". Never filled in by the client: two programs with one default
    /// would both hold the lock.
    pub owner: Option<String>,
    /// The id under which a repeated acquire gets the same grant, 16 to 128 bytes, a secret; made up if `None`.
    pub request_id: Option<String>,
    /// Labels for the hold.
    pub metadata: BTreeMap<String, String>,
}

/// Prolong a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The lock.
    pub name: String,
    /// By what it is claimed.
    pub claim: Claim,
    /// How long the hold lasts from now on, in whole milliseconds; `None` means 30 s.
    pub ttl: Option<Duration>,
}

/// By what a renewal claims its hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The token of the grant.
    Token(Secret),
    /// The owner of the hold.
    Owner(String),
}

/// How fresh a read has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The state at some moment between call and answer.
    Linearizable,
    /// What the answering node happens to know, without asking the leader.
    Stale,
}

impl Wait {
    /// What is left after `waited`, and what of it one request may ask for.
    pub(crate) fn next(self, waited: Duration) -> NextWait {
        let longest = Duration::from_millis(WAIT_MS_MAX);
        let left = match self {
            Self::No => Duration::ZERO,
            Self::UpTo(length) => length.saturating_sub(waited),
            Self::Forever => Duration::MAX,
        };
        NextWait { ask: left.min(longest), more: left > longest }
    }

    /// The whole length; `None` for ever.
    pub(crate) fn length(self) -> Option<Duration> {
        match self {
            Self::No => Some(Duration::ZERO),
            Self::UpTo(length) => Some(length),
            Self::Forever => None,
        }
    }
}

/// The wait of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextWait {
    /// What it asks for.
    pub(crate) ask: Duration,
    /// Another one follows if it ends with `held`.
    pub(crate) more: bool,
}

impl Acquire {
    /// The body of a try after `waited`.
    pub(crate) fn body(&self, request_id: &str, waited: Duration) -> AcquireBody {
        AcquireBody {
            name: self.name.clone(),
            ttl_ms: self.ttl.map(whole_ms),
            wait_ms: Some(unsigned_ms(self.wait.next(waited).ask)),
            owner: self.owner.clone(),
            request_id: Some(request_id.into()),
            queued_ms: Some(unsigned_ms(waited)).filter(|ms| *ms > 0),
            metadata: Some(self.metadata.clone()).filter(|labels| !labels.is_empty()),
        }
    }
}

pub(crate) fn whole_ms(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

fn unsigned_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wait: Wait, waited_s: u64, ask_s: u64, more: bool) {
        let expected = NextWait { ask: Duration::from_secs(ask_s), more };
        assert_eq!(wait.next(Duration::from_secs(waited_s)), expected);
    }

    #[test]
    fn a_wait_is_cut_into_requests_of_at_most_five_minutes() {
        let ten_minutes = Wait::UpTo(Duration::from_mins(10));
        check(ten_minutes, 0, 300, true);
        check(ten_minutes, 300, 300, false);
        check(ten_minutes, 450, 150, false);
        check(ten_minutes, 601, 0, false);
    }

    #[test]
    fn no_wait_asks_for_none_and_forever_always_asks_for_more() {
        check(Wait::No, 0, 0, false);
        check(Wait::Forever, 1_000_000, 300, true);
    }

    #[test]
    fn an_owner_is_never_made_up() {
        let body = Acquire { name: "l".into(), ..Acquire::default() }.body("0123456789abcdef", Duration::ZERO);
        assert_eq!((body.owner, body.queued_ms, body.ttl_ms), (None, None, None));
    }
}
