//! A small cluster: one committed log, decided by the real arbiter of whoever leads, and replicas that come and go.

use lockstead_core::{
    Acquire, Arbiter, LeaseTime, Limits, LocalTime, LockKey, LockName, Metadata, NodeId, Now, Op, OwnerName, Proof,
    Release, Renew, Request, RequestId, RequestNumber, Restating, Token, Ttl, WallTime,
};
use proptest::prelude::*;

use crate::model::{Entry, Payload, State};
use crate::replica::{Reading, Replica, Wrong};

const REPLICAS: usize = 3;
/// One expired hold is swept with each batch, so that some outlive their deadline.
const LIMITS: Limits = Limits { locks_max: 100, batch_bytes_max: 1_000, sweep_max: 1 };
const LOCKS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What somebody asks the leader.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Acquire { owned: bool, ttl_ms: i64, wait_ms: u64, labelled: bool },
    Release,
    Renew { ttl_ms: i64 },
}

/// What becomes of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Applied,
    /// Surely refused, and decided again.
    Refused,
    /// Committed, and the leader was gone before it knew.
    LeaderLost,
    /// Appended by the leader of a later term.
    Void,
}

/// One thing that happens. Replicas are numbered from 0.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Ask(usize, Ask),
    Pass {
        ms: u64,
    },
    /// The leader decides; `restating` is (entries left alone, bytes).
    Decide {
        fate: Fate,
        restating: Option<(u64, usize)>,
    },
    Apply {
        replica: usize,
        entries: u64,
    },
    Snapshot(usize),
    Purge(usize),
    /// The leader's snapshot is sent to a replica that is behind it.
    Send(usize),
    /// Memory is lost, and this many entries are replayed at once.
    Restart {
        replica: usize,
        entries: u64,
    },
    /// The disk is lost: a new node takes the place.
    Replace(usize),
    Elect(usize),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        16 => Just(Fate::Applied),
        2 => Just(Fate::Refused),
        1 => Just(Fate::LeaderLost),
        1 => Just(Fate::Void),
    ];
    let ask = prop_oneof![
        4 => (any::<bool>(), 100_i64..3_000, 0_u64..2_000, any::<bool>())
            .prop_map(|(owned, ttl_ms, wait_ms, labelled)| Ask::Acquire { owned, ttl_ms, wait_ms, labelled }),
        2 => Just(Ask::Release),
        1 => (100_i64..3_000).prop_map(|ttl_ms| Ask::Renew { ttl_ms }),
    ];
    let replica = 0..REPLICAS;
    prop_oneof![
        10 => (0..LOCKS.len(), ask).prop_map(|(lock, ask)| Step::Ask(lock, ask)),
        3 => (0_u64..900).prop_map(|ms| Step::Pass { ms }),
        9 => (fate, prop::option::weighted(0.5, (0_u64..8, 0_usize..400)))
            .prop_map(|(fate, restating)| Step::Decide { fate, restating }),
        6 => (replica.clone(), 1_u64..6).prop_map(|(replica, entries)| Step::Apply { replica, entries }),
        6 => replica.clone().prop_map(Step::Snapshot),
        3 => replica.clone().prop_map(Step::Purge),
        2 => replica.clone().prop_map(Step::Send),
        3 => (replica.clone(), 0_u64..6).prop_map(|(replica, entries)| Step::Restart { replica, entries }),
        1 => replica.clone().prop_map(Step::Replace),
        1 => replica.prop_map(Step::Elect),
    ]
}

pub(crate) struct Cluster {
    reading: Reading,
    entries: Vec<Entry>,
    /// What a replay of the first n entries gives.
    exact: Vec<State>,
    replicas: Vec<Replica>,
    leader: usize,
    term: u64,
    arbiter: Arbiter,
    now_ms: u64,
    asked: u64,
    tokens: u128,
    nodes: NodeId,
}

impl Cluster {
    /// Whether every replica agrees with a replay of the whole history, after every step.
    pub(crate) fn run(reading: Reading, steps: &[Step]) -> Result<(), Wrong> {
        let mut cluster = Self::found(reading)?;
        for step in steps {
            cluster.step(step)?;
        }
        (0..REPLICAS).try_for_each(|replica| cluster.catch_up(replica))
    }

    fn found(reading: Reading) -> Result<Self, Wrong> {
        let mut cluster = Self {
            reading,
            entries: Vec::new(),
            exact: vec![State::default()],
            replicas: (1..).take(REPLICAS).map(|id| Replica::empty(reading, id)).collect(),
            leader: 0,
            term: 0,
            arbiter: Arbiter::new(0, LIMITS),
            now_ms: 0,
            asked: 0,
            tokens: 0,
            nodes: REPLICAS as u64,
        };
        cluster.elect(0)?;
        Ok(cluster)
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        match step {
            Step::Ask(lock, ask) => self.ask(LOCKS[*lock], ask),
            Step::Pass { ms } => self.now_ms += ms,
            Step::Decide { fate, restating } => self.decide(*fate, *restating)?,
            Step::Apply { replica, entries } => self.advance(*replica, *entries)?,
            Step::Snapshot(replica) => self.replicas[*replica].take_snapshot(&self.entries, &self.exact)?,
            Step::Purge(replica) => self.replicas[*replica].purge(),
            Step::Send(replica) => self.send(*replica)?,
            Step::Restart { replica, entries } => {
                self.leave(*replica)?;
                self.replicas[*replica].restart();
                self.replay(*replica, *entries)?;
            }
            Step::Replace(replica) => {
                self.leave(*replica)?;
                self.nodes += 1;
                let gone = std::mem::replace(&mut self.replicas[*replica], Replica::empty(self.reading, self.nodes));
                self.append(Payload::Removed(gone.id))?;
            }
            Step::Elect(replica) => self.elect(*replica)?,
        }
        Ok(())
    }

    fn ask(&mut self, lock: &str, ask: &Ask) {
        let lock = LockKey::in_default(&LockName::parse(lock).expect("within bounds"));
        let ttl = |ttl_ms: i64| Ttl::from_request(Some(ttl_ms), Ttl::MAX_MS_DEFAULT).expect("within bounds");
        self.asked += 1;
        let token = self.replicas[self.leader].table.holds(&lock).first().map(|hold| hold.token);
        let op = match ask {
            Ask::Acquire { owned, ttl_ms, wait_ms, labelled } => Op::Acquire(Acquire {
                lock,
                ttl: ttl(*ttl_ms),
                wait_ms: *wait_ms,
                queued_ms: 0,
                owner: owned.then(|| OwnerName::parse("owner").expect("within bounds")),
                request_id: labelled
                    .then(|| RequestId::parse(&format!("request-{:012}", self.asked)).expect("within bounds")),
                metadata: Metadata::parse(if *labelled { vec![("k".to_owned(), "v".to_owned())] } else { vec![] })
                    .expect("within bounds"),
            }),
            Ask::Release => Op::Release(Release { lock, token }),
            Ask::Renew { ttl_ms } => Op::Renew(Renew { lock, proof: Proof::Token(token), ttl: ttl(*ttl_ms) }),
        };
        let arrived = LocalTime(self.now_ms);
        self.arbiter.submit(Request { number: RequestNumber(self.asked), arrived, ends: arrived.plus_ms(9_000), op });
    }

    fn decide(&mut self, fate: Fate, restating: Option<(u64, usize)>) -> Result<(), Wrong> {
        let now = Now { lease: LeaseTime(self.now_ms), local: LocalTime(self.now_ms), wall: WallTime(self.now_ms) };
        let last = self.entries.len() as u64;
        let restating =
            restating.map(|(left_alone, bytes_max)| Restating { upto: last.saturating_sub(left_alone), bytes_max });
        let tokens = &mut self.tokens;
        let mut drain = self.arbiter.decide(&self.replicas[self.leader].table, now, true, restating, &mut || {
            *tokens += 1;
            Token(tokens.to_be_bytes())
        });
        let Some(batch) = drain.batch.take() else { return Ok(()) };
        let payload = Payload::Batch(batch.into_bytes());
        match fate {
            Fate::Applied => {
                self.append(payload)?;
                self.catch_up(self.leader)
            }
            Fate::Refused => {
                self.arbiter.take_back(drain);
                Ok(())
            }
            Fate::LeaderLost => {
                self.append(payload)?;
                self.elect((self.leader + 1) % REPLICAS)
            }
            Fate::Void => {
                self.elect((self.leader + 1) % REPLICAS)?;
                self.append(payload)?;
                self.catch_up(self.leader)
            }
        }
    }

    /// A replica takes the lead in a new term: it applies everything before it decides.
    fn elect(&mut self, replica: usize) -> Result<(), Wrong> {
        self.catch_up(replica)?;
        self.leader = replica;
        self.term += 1;
        self.arbiter = Arbiter::new(self.term, LIMITS);
        self.append(Payload::Blank)?;
        self.catch_up(replica)
    }

    /// Another replica leads.
    fn leave(&mut self, replica: usize) -> Result<(), Wrong> {
        if replica == self.leader { self.elect((replica + 1) % REPLICAS) } else { Ok(()) }
    }

    fn append(&mut self, payload: Payload) -> Result<(), Wrong> {
        let entry = Entry { term: self.term, payload };
        let index = self.entries.len() as u64 + 1;
        let state = self.exact.last().expect("one before the first").after(index, &entry);
        self.exact.push(state);
        self.entries.push(entry);
        self.catch_up(self.leader)
    }

    fn catch_up(&mut self, replica: usize) -> Result<(), Wrong> {
        self.advance(replica, self.entries.len() as u64)
    }

    /// A replica gets and applies up to so many entries; what the leader has purged it gets as a snapshot.
    fn advance(&mut self, replica: usize, entries: u64) -> Result<(), Wrong> {
        for _ in 0..entries {
            let next = self.replicas[replica].applied + 1;
            if next > self.entries.len() as u64 {
                break;
            }
            if next > self.replicas[replica].logged && next <= self.replicas[self.leader].purged {
                self.send(replica)?;
                if self.replicas[replica].applied < next {
                    return Err(format!("entry {next} is purged, and no snapshot reaches it"));
                }
                continue;
            }
            self.replicas[replica].logged = self.replicas[replica].logged.max(next);
            self.replicas[replica].apply(&self.entries, &self.exact)?;
        }
        Ok(())
    }

    fn send(&mut self, replica: usize) -> Result<(), Wrong> {
        let Some(snapshot) = self.replicas[self.leader].snapshot.clone() else { return Ok(()) };
        let receiver = &mut self.replicas[replica];
        if snapshot.label > receiver.applied {
            receiver.install(&snapshot);
            receiver.check(&self.exact)?;
        }
        Ok(())
    }

    /// A restarted replica applies what its own log holds.
    fn replay(&mut self, replica: usize, entries: u64) -> Result<(), Wrong> {
        let replica = &mut self.replicas[replica];
        for _ in 0..entries {
            if replica.applied == replica.logged {
                break;
            }
            replica.apply(&self.entries, &self.exact)?;
        }
        replica.check(&self.exact)
    }
}
