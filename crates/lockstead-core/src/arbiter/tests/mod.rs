//! Scripts: input lines, each followed by the lines (`> `) that it must print.

mod properties;
mod script_acquire;
mod script_bounds;
mod script_holds;
mod script_restate;
mod script_take_back;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::name::{LockName, Metadata, NamespaceName, OwnerName, RequestId};
use crate::record::{Batch, Live, Record};
use crate::request::{Acquire, Get, GiveBack, Op, Outcome, Proof, Release, Renew};
use crate::residue::Residue;
use crate::units::Ttl;

/// An arbiter with its table and clocks, driven by lines of text:
///
/// - `limits locks=N bytes=N sweep=N`, `hold-off MS`, `term N` before anything else
/// - `time MS`: sets lease time and the node's clock
/// - `N acquire OWNER LOCK [ttl= wait= rid= queued= ends= label=]`, owner `-` for none
/// - `N release LOCK #FENCE`, `N renew LOCK #FENCE|OWNER [ttl=]`, `N get LOCK`, `N giveback LOCK #FENCE [term=]`;
///   `#bad` for what is no token
/// - `cancel N`
/// - `decide`: prints the batch and the answers (`*` = logged); `tick` is the same with a tick due; both, and `go`,
///   take `upto=INDEX bytes=N` to restate
/// - `apply`: applies the batch in flight; `refuse`: takes it back; `go`: decide and apply
/// - `state`: prints gauges
struct Script {
    arbiter: Arbiter,
    table: Table,
    now_ms: u64,
    index: u64,
    tokens_made: u128,
    tokens: BTreeMap<u64, Token>,
    in_flight: Option<Drain>,
}

fn check(script: &str) {
    let mut world = Script::new(7, Limits::default(), &Residue::default());
    let mut printed = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('>')) {
        writeln!(printed, "{line}").unwrap();
        for output in world.run(line) {
            writeln!(printed, "> {output}").unwrap();
        }
    }
    let expected: String =
        script.lines().map(str::trim).filter(|line| !line.is_empty()).fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        });
    assert!(printed == expected, "\n--- expected\n{expected}\n--- printed\n{printed}");
}

fn lock_key(text: &str) -> LockKey {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    LockKey::new(&NamespaceName::parse(namespace).unwrap(), &LockName::parse(name).unwrap())
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number(words: &[&str], name: &str, default: u64) -> u64 {
    option(words, name).map_or(default, |text| text.parse().unwrap())
}

fn restating(words: &[&str]) -> Option<Restating> {
    let upto = option(words, "upto")?.parse().unwrap();
    Some(Restating { upto, bytes_max: usize::try_from(number(words, "bytes", 65_536)).unwrap() })
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_request(Some(i64::try_from(ms).unwrap()), Ttl::MAX_MS_DEFAULT).unwrap()
}

fn request_id(text: &str) -> RequestId {
    RequestId::parse(&format!("request-id-of-{text:>16}")).unwrap()
}

impl Script {
    fn new(term: u64, limits: Limits, residue: &Residue) -> Self {
        Self {
            arbiter: Arbiter::new(term, limits),
            table: Table::from_residue(residue),
            now_ms: 0,
            index: 0,
            tokens_made: 0,
            tokens: BTreeMap::new(),
            in_flight: None,
        }
    }

    fn run(&mut self, line: &str) -> Vec<String> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[0] {
            "limits" => {
                let defaults = Limits::default();
                self.arbiter.limits = Limits {
                    locks_max: number(&words, "locks", defaults.locks_max),
                    batch_bytes_max: usize::try_from(number(&words, "bytes", 65_536)).unwrap(),
                    sweep_max: usize::try_from(number(&words, "sweep", 128)).unwrap(),
                };
            }
            "hold-off" => {
                let no_grant_before = LeaseTime(words[1].parse().unwrap());
                self.table = Table::from_residue(&Residue { no_grant_before, ..Residue::default() });
            }
            "fence" => {
                let last_fence = Fence(words[1].parse().unwrap());
                self.table = Table::from_residue(&Residue { last_fence, ..Residue::default() });
            }
            "time" => self.now_ms = words[1].parse().unwrap(),
            "cancel" => self.arbiter.cancel(RequestNumber(words[1].parse().unwrap())),
            "decide" => return self.decide(false, restating(&words)),
            "tick" => return self.decide(true, restating(&words)),
            "go" => {
                let printed = self.decide(false, restating(&words));
                self.apply();
                return printed;
            }
            "apply" => self.apply(),
            "refuse" => {
                let drain = self.in_flight.take().expect("a drain in flight");
                self.arbiter.take_back(drain);
            }
            "state" => return vec![self.state()],
            _ => self.submit(&words),
        }
        Vec::new()
    }

    fn state(&self) -> String {
        let (waiting, pending) = (self.arbiter.waiting(), self.arbiter.has_pending());
        let wait_end = self.arbiter.next_wait_end().map(|end| end.0);
        format!("waiting={waiting} pending={pending} wait_end={wait_end:?} live={}", self.table.live_records())
    }

    fn submit(&mut self, words: &[&str]) {
        let arrived = LocalTime(self.now_ms);
        self.arbiter.submit(Request {
            number: RequestNumber(words[0].parse().unwrap()),
            arrived,
            ends: arrived.plus_ms(number(words, "ends", 1_000_000)),
            op: self.op(&words[1..]),
        });
    }

    fn op(&self, words: &[&str]) -> Op {
        match words[0] {
            "acquire" => Op::Acquire(Acquire {
                lock: lock_key(words[2]),
                ttl: ttl(number(words, "ttl", 1_000)),
                wait_ms: number(words, "wait", 0),
                queued_ms: number(words, "queued", 0),
                owner: (words[1] != "-").then(|| OwnerName::parse(words[1]).unwrap()),
                request_id: option(words, "rid").map(request_id),
                metadata: option(words, "label").map_or_else(Metadata::default, |label| {
                    Metadata::parse(vec![("label".to_owned(), label.to_owned())]).unwrap()
                }),
            }),
            "release" => Op::Release(Release { lock: lock_key(words[1]), token: self.token(words[2]) }),
            "renew" => Op::Renew(Renew {
                lock: lock_key(words[1]),
                proof: if words[2].starts_with('#') {
                    Proof::Token(self.token(words[2]))
                } else {
                    Proof::Owner(OwnerName::parse(words[2]).unwrap())
                },
                ttl: ttl(number(words, "ttl", 1_000)),
            }),
            "get" => Op::Get(Get { lock: lock_key(words[1]) }),
            "giveback" => Op::GiveBack(GiveBack {
                lock: lock_key(words[1]),
                fence: Fence(words[2][1..].parse().unwrap()),
                term: number(words, "term", 7),
            }),
            other => panic!("unknown operation {other}"),
        }
    }

    fn token(&self, text: &str) -> Option<Token> {
        let fence = text.strip_prefix('#').unwrap().parse::<u64>().ok()?;
        Some(*self.tokens.get(&fence).unwrap_or(&Token([0xff; 16])))
    }

    fn decide(&mut self, tick_due: bool, restating: Option<Restating>) -> Vec<String> {
        assert!(self.in_flight.is_none(), "one batch in flight");
        let now = Now {
            lease: LeaseTime(self.now_ms),
            local: LocalTime(self.now_ms),
            wall: WallTime(1_700_000_000_000 + self.now_ms),
        };
        let made = &mut self.tokens_made;
        let drain = self.arbiter.decide(&self.table, now, tick_due, restating, &mut || {
            *made += 1;
            Token(made.to_be_bytes())
        });
        let printed = show_drain(&drain);
        assert_eq!(drain.restated, printed.iter().map(|line| line.matches("again ").count() as u64).sum::<u64>());
        for answer in &drain.answers {
            if let Outcome::Granted(grant) = &answer.outcome {
                self.tokens.insert(grant.fence.0, grant.token);
            }
        }
        self.in_flight = Some(drain);
        printed
    }

    fn apply(&mut self) {
        let Some(batch) = self.in_flight.take().and_then(|drain| drain.batch) else { return };
        self.index += 1;
        let batch = Batch::decode(&batch.into_bytes()).unwrap();
        self.table.apply(self.index, self.arbiter.term(), batch);
    }
}

fn show_drain(drain: &Drain) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(batch) = &drain.batch {
        let batch = Batch::decode(&batch.clone().into_bytes()).unwrap();
        let records: Vec<_> = batch.records.iter().map(show_record).collect();
        lines.push(format!("log {}", if records.is_empty() { "tick".to_owned() } else { records.join(", ") }));
    }
    for (answer, decided) in drain.answers.iter().zip(&drain.decided) {
        assert_eq!(answer.number, decided.number);
        let logged = if decided.logged { " *" } else { "" };
        let waited = if answer.waited_ms > 0 { format!(" waited={}", answer.waited_ms) } else { String::new() };
        lines.push(format!("{} {}{waited}{logged}", answer.number.0, show_outcome(&answer.outcome)));
    }
    lines.extend(drain.overdue.iter().map(|number| format!("{} overdue", number.0)));
    lines
}

fn show_record(record: &Record) -> String {
    match record {
        Record::Hold(hold) => format!("{}#{} until {}", hold.lock.name(), hold.fence.0, hold.deadline.0),
        Record::Drop { lock, fence, reason } => format!("{}#{} {reason:?}", lock.name(), fence.0),
        Record::Restate(Live::Hold(hold)) => {
            format!("again {}#{} until {}", hold.lock.name(), hold.fence.0, hold.deadline.0)
        }
    }
}

fn show_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Granted(grant) => {
            let fresh = if grant.fresh { " fresh" } else { "" };
            let renewed = if grant.renewed { " renewed" } else { "" };
            format!("granted #{} ttl={} left={}{fresh}{renewed}", grant.fence.0, grant.ttl.as_ms(), grant.left_ms)
        }
        Outcome::Held(held) => format!("held by {} queue={}", show_holders(&held.holders), held.queue_len),
        Outcome::LimitExceeded { limit, current } => format!("limit {limit} current {current}"),
        Outcome::Renewed(renewal) => {
            format!("renewed #{} ttl={} left={}", renewal.fence.0, renewal.ttl.as_ms(), renewal.left_ms)
        }
        Outcome::Got(view) => {
            let waiters: Vec<_> = view.waiters.iter().map(|waiter| waiter.waiting_ms.to_string()).collect();
            format!("got {} waiting [{}]", show_holders(&view.holders), waiters.join(" "))
        }
        other => format!("{other:?}"),
    }
}

fn show_holders(holders: &[crate::request::HolderView]) -> String {
    let show = |holder: &crate::request::HolderView| {
        let owner = holder.owner.as_ref().map_or("-", OwnerName::as_str);
        let hold = format!("#{} {owner} left={}", holder.fence.0, holder.left_ms);
        holder.metadata.labels().iter().fold(hold, |text, (_, value)| text + " " + value)
    };
    format!("[{}]", holders.iter().map(show).collect::<Vec<_>>().join(", "))
}
