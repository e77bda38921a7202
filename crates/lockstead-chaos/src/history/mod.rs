//! What the clients of a run saw, call by call, with the faults that were done meanwhile.
//!
//! All moments are microseconds of one clock of the run, which every client reads. A history is a value; [`Writer`] and
//! [`History::read`] carry it as JSON lines, so that a run can be judged again later, or cut down by hand.

mod call;
mod file;
mod show;

use serde::{Deserialize, Serialize};

pub use call::{Answer, Call, Excuse, Lost, Op, Proof};
pub use file::{ReadError, Writer};

/// The version of the file format that this crate writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// How the run was set up.
    pub header: Header,
    /// Each try of each client, in no particular order.
    pub calls: Vec<Call>,
    /// What was done to the cluster.
    pub faults: Vec<Fault>,
    /// When nobody led.
    pub leaderless: Vec<Leaderless>,
    /// The writes to the guarded registers.
    pub writes: Vec<Write>,
}

/// How a run was set up: the first line of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the file format, [`FORMAT`].
    pub format: u32,
    /// What the schedule of the run came from.
    pub seed: u64,
    /// How many nodes the cluster has.
    pub nodes: u32,
    /// How often an idle leader logs lease time.
    pub tick_ms: u64,
    /// The maximum election timeout of the nodes.
    pub election_max_ms: u64,
    /// How far the clocks of holder and leader may drift apart.
    #[serde(default)]
    pub drift: Drift,
}

impl Header {
    /// The header of a run with the timing that nodes have by default.
    pub fn new(seed: u64, nodes: u32) -> Self {
        Self { format: FORMAT, seed, nodes, tick_ms: 250, election_max_ms: 300, drift: Drift::default() }
    }
}

impl Default for Header {
    fn default() -> Self {
        Self::new(0, 3)
    }
}

/// The margin that a client takes off its deadline: a share of the TTL and one of the wait, with a least value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// Thousandths of the TTL.
    pub ttl_permille: u64,
    /// Thousandths of the wait.
    pub waited_permille: u64,
    /// The margin is never smaller than this.
    pub least_ms: u64,
}

impl Default for Drift {
    /// The rule that clients of Lockstead count by: 1 % of the TTL + 0.1 % of the wait, at least 10 ms.
    fn default() -> Self {
        Self { ttl_permille: 10, waited_permille: 1, least_ms: 10 }
    }
}

impl Drift {
    /// The margin for a hold of this TTL that was granted after this wait.
    pub fn margin_us(self, ttl_ms: u64, waited_ms: u64) -> u64 {
        let (of_ttl_us, of_wait_us) =
            (ttl_ms.saturating_mul(self.ttl_permille), waited_ms.saturating_mul(self.waited_permille));
        of_ttl_us.saturating_add(of_wait_us).max(self.least_ms * 1_000)
    }
}

/// One line of a history after its header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A try of a client.
    Call(Call),
    /// A fault that was done.
    Fault(Fault),
    /// A time without a leader.
    Leaderless(Leaderless),
    /// A write to a guarded register.
    Write(Write),
}

/// Something done to the cluster or its links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What was done, in the runner's words: `kill`, `pause`, `cut`, …
    pub kind: String,
    /// To which node or link.
    pub target: String,
    /// From when.
    pub begin_us: u64,
    /// Until when; the same moment for a fault without length.
    pub end_us: u64,
    /// Whether it was seen to do anything.
    pub took_effect: bool,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A time in which no leader with a quorum answered, as a prober saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaderless {
    /// When the last probe that was answered was sent, or a later moment that surely still had a leader.
    pub begin_us: u64,
    /// When a probe was answered again.
    pub end_us: u64,
}

/// A write by a client that counts on its hold, to a register that refuses a fence below the highest it has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// Who wrote.
    pub client: u32,
    /// The lock that guards the register.
    pub lock: String,
    /// The fence of the writer's hold.
    pub fence: u64,
    /// When the register decided.
    pub at_us: u64,
    /// What it decided.
    pub accepted: bool,
}

impl Leaderless {
    /// By their begin; those that overlap are one.
    pub(crate) fn merged(mut times: Vec<Self>) -> Vec<Self> {
        times.sort_by_key(|time| time.begin_us);
        let mut merged: Vec<Self> = Vec::new();
        for time in times {
            match merged.last_mut() {
                Some(last) if time.begin_us <= last.end_us => last.end_us = last.end_us.max(time.end_us),
                _ => merged.push(time),
            }
        }
        merged
    }
}

impl History {
    /// An empty history.
    pub fn new(header: Header) -> Self {
        Self { header, ..Self::default() }
    }

    /// Adds a record.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Call(call) => self.calls.push(call),
            Record::Fault(fault) => self.faults.push(fault),
            Record::Leaderless(leaderless) => self.leaderless.push(leaderless),
            Record::Write(write) => self.writes.push(write),
        }
    }
}

impl From<Call> for Record {
    fn from(call: Call) -> Self {
        Self::Call(call)
    }
}

impl From<Fault> for Record {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Leaderless> for Record {
    fn from(leaderless: Leaderless) -> Self {
        Self::Leaderless(leaderless)
    }
}

impl From<Write> for Record {
    fn from(write: Write) -> Self {
        Self::Write(write)
    }
}
