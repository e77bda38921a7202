//! Clients of a [`service`](crate::service), the way to it and back, and the history that they see.
//!
//! Time is simulated: a run of some seconds takes a few milliseconds, and is the same for the same seed.

use std::collections::BTreeMap;

use lockstead_chaos::dice::Dice;
use lockstead_chaos::history::{Answer, Call, Excuse, Header, History, Leaderless, Lost, Op, Proof, Write};

use crate::service::{Bug, Desk, Lock, Moment, Request};

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) bug: Bug,
    pub(crate) clients: u32,
    pub(crate) length_ms: u64,
    pub(crate) ttl_max_ms: u64,
    /// Of 100 calls, so many lose their request, their answer, or their client.
    pub(crate) lost_percent: u64,
    /// In which ways.
    pub(crate) losses: &'static [Fate],
    pub(crate) wait_max_ms: u64,
}

impl Plan {
    pub(crate) fn correct(seed: u64) -> Self {
        Self {
            seed,
            bug: Bug::None,
            clients: 6,
            length_ms: 4_000,
            ttl_max_ms: 600,
            lost_percent: 15,
            losses: &[Fate::AnswerLost, Fate::RequestLost, Fate::Abandoned],
            wait_max_ms: 1_500,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client does the next thing.
    Next(u32),
    Arrive(usize),
    WaitEnds(usize),
    /// The answer of a call is there.
    Receive(usize),
    /// The client of a call goes away without an answer.
    Leave(usize),
    /// The service sees that the client of a call is gone.
    Cancel(usize),
    Sweep,
}

/// What becomes of a call on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    AnswerLost,
    RequestLost,
    Abandoned,
}

#[derive(Clone, Debug, Default)]
struct Client {
    token: Option<String>,
    retry: Option<Op>,
}

struct Run {
    plan: Plan,
    dice: Dice,
    now_us: u64,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    locks: BTreeMap<String, Lock>,
    registers: BTreeMap<String, u64>,
    last_fence: u64,
    clients: Vec<Client>,
    fates: Vec<Fate>,
    arrivals: BTreeMap<usize, u64>,
    answers: BTreeMap<usize, Answer>,
    history: History,
}

/// The history of a run.
pub(crate) fn run(plan: Plan) -> History {
    let mut run = Run {
        plan,
        dice: Dice::new(plan.seed, 0),
        now_us: 0,
        events: BTreeMap::new(),
        scheduled: 0,
        locks: BTreeMap::new(),
        registers: BTreeMap::new(),
        last_fence: 0,
        clients: vec![Client::default(); plan.clients as usize],
        fates: Vec::new(),
        arrivals: BTreeMap::new(),
        answers: BTreeMap::new(),
        history: History::new(Header::new(plan.seed, 3)),
    };
    run.plan_outages();
    for client in 0..plan.clients {
        run.at(u64::from(client) * 1_000, Event::Next(client));
    }
    run.at(0, Event::Sweep);
    while let Some(((at_us, _), event)) = run.events.pop_first() {
        run.now_us = at_us;
        run.handle(event);
    }
    run.history
}

impl Run {
    fn plan_outages(&mut self) {
        let mut begin_us = 0;
        for _ in 0..self.dice.below(3) {
            begin_us += 300_000 + self.dice.below(1_500_000);
            let end_us = begin_us + 50_000 + self.dice.below(500_000);
            self.history.leaderless.push(Leaderless { begin_us, end_us });
            begin_us = end_us;
        }
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((at_us, self.scheduled), event);
    }

    /// When a leader leads again, if none does.
    fn outage(&self) -> Option<u64> {
        let is_now = |outage: &&Leaderless| (outage.begin_us..outage.end_us).contains(&self.now_us);
        self.history.leaderless.iter().find(is_now).map(|outage| outage.end_us)
    }

    fn lease_us(&self) -> u64 {
        let before = self.history.leaderless.iter().filter(|outage| outage.end_us <= self.now_us);
        self.now_us - before.map(|outage| outage.end_us - outage.begin_us).sum::<u64>()
    }

    fn handle(&mut self, event: Event) {
        let needs_leader = matches!(event, Event::Arrive(_) | Event::WaitEnds(_) | Event::Cancel(_) | Event::Sweep);
        if let Some(end_us) = self.outage().filter(|_| needs_leader) {
            if let Event::Arrive(call) = event {
                self.arrivals.entry(call).or_insert(self.now_us);
            }
            return self.at(end_us, event);
        }
        match event {
            Event::Next(client) => self.next(client),
            Event::Arrive(call) => {
                let (op, lock) = (self.history.calls[call].op.clone(), self.history.calls[call].lock.clone());
                let arrived_us = *self.arrivals.entry(call).or_insert(self.now_us);
                if let Op::Acquire { wait_ms: wait_ms @ 1.., .. } = op {
                    self.at((arrived_us + wait_ms * 1_000).max(self.now_us + 1), Event::WaitEnds(call));
                }
                self.decide(&lock, |lock, desk| lock.decide(Request { call, op, arrived_us }, desk));
            }
            Event::WaitEnds(call) => {
                let lock = self.history.calls[call].lock.clone();
                self.decide(&lock, |lock, desk| lock.wait_ends(call, desk));
            }
            Event::Cancel(call) => {
                let lock = self.history.calls[call].lock.clone();
                self.decide(&lock, |lock, desk| lock.cancel(call, desk));
            }
            Event::Sweep => {
                for lock in self.locks.keys().cloned().collect::<Vec<String>>() {
                    self.decide(&lock, Lock::sweep);
                }
                if self.now_us < (self.plan.length_ms + 10_000) * 1_000 {
                    let pause_us = 20_000 + self.dice.below(200_000);
                    self.at(self.now_us + pause_us, Event::Sweep);
                }
            }
            Event::Receive(call) => self.receive(call),
            Event::Leave(call) => self.leave(call),
        }
    }

    fn decide(&mut self, name: &str, what: impl FnOnce(&mut Lock, &mut Desk<'_>)) {
        let now = Moment { at_us: self.now_us, lease_us: self.lease_us() };
        let lock = self.locks.entry(name.to_owned()).or_insert_with(|| Lock::new(self.plan.bug));
        let mut desk = Desk { now, dice: &mut self.dice, last_fence: &mut self.last_fence, answers: Vec::new() };
        what(lock, &mut desk);
        for (call, answer) in desk.answers {
            if self.fates[call] == Fate::Answered {
                self.answers.insert(call, answer);
                let way_us = self.way_us();
                self.at(self.now_us + way_us, Event::Receive(call));
            } else if self.fates[call] == Fate::Abandoned {
                // It may be there before the client goes away; then it is an answer like any other.
                let left_us = self.left_us(call);
                if self.now_us + 1_000 < left_us {
                    self.answers.insert(call, answer);
                    self.at(self.now_us + 1_000, Event::Receive(call));
                }
            }
        }
    }

    fn left_us(&self, call: usize) -> u64 {
        match self.history.calls[call].answer {
            Answer::Unknown { why: Lost::Abandoned { at_us } | Lost::ConnectionLost { at_us } } => at_us,
            _ => u64::MAX,
        }
    }

    /// How long a message takes: mostly little.
    fn way_us(&mut self) -> u64 {
        let max_us = if self.dice.chance(5) { 400_000 } else { 5_000 };
        100 + self.dice.below(max_us)
    }

    // ---- clients

    fn next(&mut self, client: u32) {
        if self.now_us >= self.plan.length_ms * 1_000 {
            return;
        }
        let op = self.next_op(client);
        let lock = if client % 3 == 2 { "b" } else { "a" };
        self.send(client, lock, op);
    }

    fn next_op(&mut self, client: u32) -> Op {
        let state = self.clients[client as usize].clone();
        let ttl_ms = 100 + self.dice.below(self.plan.ttl_max_ms);
        // A team of two shares an owner, which no program should do, but any may.
        let owner = (client < 3).then(|| format!("owner {}", client / 2));
        match (state.token, state.retry, self.dice.below(100)) {
            (Some(token), _, 0..30) => Op::Renew { by: Proof::Token(token), ttl_ms },
            (Some(token), _, 30..55) => Op::Release { token },
            (_, Some(retry), 0..60) => retry,
            (_, _, 0..70) => Op::Acquire {
                ttl_ms,
                wait_ms: if self.dice.chance(50) { self.dice.below(self.plan.wait_max_ms) } else { 0 },
                owner: owner.filter(|_| self.dice.chance(50)),
                request_id: Some(format!("{:032x}", self.dice.next())).filter(|_| self.dice.chance(70)),
                queued_ms: 0,
            },
            (_, _, 70..80) if owner.is_some() => Op::Renew { by: Proof::Owner(owner.unwrap_or_default()), ttl_ms },
            _ => Op::Get,
        }
    }

    fn send(&mut self, client: u32, lock: &str, op: Op) {
        let fate = match self.dice.below(100) {
            roll if roll >= self.plan.lost_percent => Fate::Answered,
            _ => *self.dice.pick(self.plan.losses),
        };
        let wait_ms = if let Op::Acquire { wait_ms, .. } = op { wait_ms } else { 0 };
        let index = self.history.calls.len();
        let at_us = self.now_us + 1_000 + self.dice.below((wait_ms + 50) * 1_000);
        let (why, excuse) = match fate {
            Fate::Abandoned => (Lost::Abandoned { at_us }, None),
            _ => (Lost::ConnectionLost { at_us }, Some(Excuse::LinkFault)),
        };
        if fate != Fate::RequestLost {
            // Some arrive long after their clients have gone.
            let is_late = fate == Fate::AnswerLost && self.dice.chance(20);
            let way_us = if is_late { self.dice.below(1_500_000) } else { self.way_us() };
            self.at(self.now_us + way_us, Event::Arrive(index));
        }
        if fate != Fate::Answered {
            self.at(at_us, Event::Leave(index));
        }
        self.fates.push(fate);
        self.history.calls.push(Call {
            id: index as u64 + 1,
            client,
            node: 1 + self.dice.below(3),
            lock: lock.to_owned(),
            op,
            sent_us: self.now_us,
            received_us: None,
            answer: Answer::Unknown { why },
            excuse: excuse.filter(|_| fate != Fate::Answered),
        });
    }

    fn receive(&mut self, index: usize) {
        let Some(answer) = self.answers.remove(&index) else { return };
        let call = &mut self.history.calls[index];
        if self.fates[index] == Fate::Abandoned && call.received_us.is_none() {
            self.fates[index] = Fate::Answered;
        }
        (call.received_us, call.answer) = (Some(self.now_us), answer);
        let (client, op, lock) = (call.client, call.op.clone(), call.lock.clone());
        let state = &mut self.clients[client as usize];
        match call.answer.clone() {
            Answer::Granted { token, fence, expires_in_ms, waited_ms, .. } => {
                let until_us = call.sent_us + (waited_ms + expires_in_ms) * 1_000;
                (state.token, state.retry) = (Some(token), Some(op));
                if until_us > self.now_us + 20_000 {
                    self.write(client, &lock, fence);
                }
            }
            Answer::Released | Answer::NotHolder => state.token = None,
            _ => {}
        }
        self.think(client);
    }

    fn leave(&mut self, index: usize) {
        if self.history.calls[index].received_us.is_some() {
            return;
        }
        let Call { client, op, .. } = self.history.calls[index].clone();
        if self.fates[index] == Fate::Abandoned {
            self.fates[index] = Fate::AnswerLost;
            let seen_us = self.now_us + self.dice.below(50_000);
            // A request that is still on its way is cancelled when it arrives, not before.
            self.at(seen_us + 410_000, Event::Cancel(index));
            self.at(seen_us, Event::Cancel(index));
        }
        match op {
            Op::Acquire { .. } => self.clients[client as usize].retry = Some(op),
            Op::Release { .. } => self.clients[client as usize].token = None,
            _ => {}
        }
        self.think(client);
    }

    fn think(&mut self, client: u32) {
        let pause_us = self.dice.below(120_000);
        self.at(self.now_us + pause_us, Event::Next(client));
    }

    fn write(&mut self, client: u32, lock: &str, fence: u64) {
        let register = self.registers.entry(lock.to_owned()).or_default();
        let accepted = fence >= *register;
        *register = fence.max(*register);
        self.history.writes.push(Write { client, lock: lock.to_owned(), fence, at_us: self.now_us, accepted });
    }
}
