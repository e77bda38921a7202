//! What clients do.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Ground;
use super::client::{Client, Hold};
use super::lanes::Lane;
use super::transport::{Ask, Patience, Transport, bytes_of, was_refused};
use crate::clock::{ms, now, pause_until};
use crate::history::{Answer, Lost, Op, Proof};
use crate::http::Conn;

/// Something that a client does from begin to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Waits for the lock, with a request id, and uses it.
    Wait,
    /// Tries to get the lock without waiting, with neither id nor owner, and uses it.
    Try,
    /// Acquires under the owner of its lane, as others do, and uses it.
    AsOwner,
    /// Waits, and goes away before it is answered.
    Abandon,
    /// Asks who holds the lock.
    Look,
}

/// How often each comes. A new move is a row here and an arm in [`one`].
const MOVES: [(Move, u64); 5] =
    [(Move::Wait, 46), (Move::Try, 18), (Move::AsOwner, 10), (Move::Abandon, 9), (Move::Look, 17)];

/// Something that a client does while it has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Writes to the register that the lock guards.
    Write,
    /// Renews, mostly by the token.
    Renew,
    /// Sends the request that got it the lock once more, to whatever node.
    Repeat,
    /// Asks who holds the lock.
    Look,
}

const STEPS: [(Step, u64); 4] = [(Step::Write, 40), (Step::Renew, 30), (Step::Repeat, 18), (Step::Look, 12)];

/// How a client leaves the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Release,
    /// And once more, as after a lost answer.
    ReleaseTwice,
    /// And then renews what is no longer its own.
    ReleaseAndRenew,
    /// While another waits on a connection that ends in the same moment.
    ReleaseToTheGone,
    /// It dies: the TTL ends the hold.
    Leave,
}

const ENDS: [(End, u64); 5] = [
    (End::Release, 54),
    (End::ReleaseTwice, 8),
    (End::ReleaseAndRenew, 6),
    (End::ReleaseToTheGone, 10),
    (End::Leave, 22),
];

/// How often a client that will go away looks for an answer.
const LOOK_EVERY: Duration = ms(1);

fn weighed<T: Copy>(client: &mut Client, table: &[(T, u64)]) -> T {
    let mut left = client.dice.below(table.iter().map(|(_, weight)| weight).sum());
    for (item, weight) in table {
        if left < *weight {
            return *item;
        }
        left -= weight;
    }
    table[0].0
}

/// One move.
pub(super) fn one(client: &mut Client) {
    let lock = client.lock();
    let ttl_ms = *client.dice.pick(client.lane.ttls_ms);
    let held = match weighed(client, &MOVES) {
        Move::Wait => {
            let wait_ms_max = *client.dice.pick(&[300, 1_500, 5_000]);
            let (request_id, wait_ms) = (Some(client.request_id()), client.dice.between(&(0..=wait_ms_max)));
            client.acquire(&lock, Op::Acquire { ttl_ms, wait_ms, owner: None, request_id, queued_ms: 0 })
        }
        Move::Try => {
            client.acquire(&lock, Op::Acquire { ttl_ms, wait_ms: 0, owner: None, request_id: None, queued_ms: 0 })
        }
        Move::AsOwner => {
            let request_id = if client.dice.chance(50) { Some(client.request_id()) } else { None };
            let wait_ms = client.dice.between(&(0..=2_000));
            let owner = Some(client.lane.shared_owner());
            client.acquire(&lock, Op::Acquire { ttl_ms, wait_ms, owner, request_id, queued_ms: 0 })
        }
        Move::Abandon => {
            abandon(client, &lock);
            None
        }
        Move::Look => {
            // Twice, at nodes that may differ.
            client.ask(&lock, Op::Get);
            client.ask(&lock, Op::Get);
            None
        }
    };
    if let Some(hold) = held {
        keep(client, hold);
    }
}

/// Looks at any lock through any node, also at one that its clients have just left. It does not wait for long: a node
/// that is cut off takes its time.
pub(super) fn watch(client: &mut Client) {
    let (ground, elapsed) = (Arc::clone(&client.ground), client.ground.origin.elapsed());
    let lane = Lane::any(&mut client.dice, ground.crowd.clients);
    let is_current = client.dice.chance(65);
    let lock = if is_current { lane.lock(&ground.run, elapsed) } else { lane.lock_before(&ground.run, elapsed) };
    let at = ground.endpoints.any(&mut client.dice);
    client.ask_at(at, &lock, Op::Get, Patience::Short(ms(300)));
}

/// Uses a hold for a while, as long as it may be counted on, and leaves it.
fn keep(client: &mut Client, mut hold: Hold) {
    let until = now() + ms(client.dice.between(&client.lane.keep_ms.clone()));
    while now() < until && hold.is_counted_on() && !client.ground.is_stopped() {
        let step = weighed(client, &STEPS);
        take_step(client, &mut hold, step);
        client.pause(&(5..=(hold.ttl_ms / 6).clamp(20, 400)));
    }
    leave(client, &hold);
}

fn take_step(client: &mut Client, hold: &mut Hold, step: Step) {
    match step {
        // Whoever shares an owner does not know whether the others have let go.
        Step::Write if !hold.is_shared() && hold.is_counted_on() => {
            let ground = &client.ground;
            let write = ground.registers.write(client.number, &hold.lock, hold.fence, || ground.us(now()));
            ground.recorder.note(write);
        }
        Step::Write | Step::Look => {
            client.ask(&hold.lock, Op::Get);
        }
        Step::Renew => renew(client, hold),
        Step::Repeat => {
            if matches!(&hold.asked, Op::Acquire { request_id: Some(_), .. }) {
                client.ask(&hold.lock, hold.asked.clone());
            }
        }
    }
}

fn renew(client: &mut Client, hold: &mut Hold) {
    let ttl_ms = if client.dice.chance(80) { hold.ttl_ms } else { *client.dice.pick(client.lane.ttls_ms) };
    let by = match &hold.asked {
        Op::Acquire { owner: Some(owner), .. } if client.dice.chance(50) => Proof::Owner(owner.clone()),
        _ => Proof::Token(hold.token.clone()),
    };
    hold.renewal_goes_out(ttl_ms);
    let told = client.ask(&hold.lock, Op::Renew { by, ttl_ms });
    hold.renewal_came_back(ttl_ms, told.as_ref());
}

fn leave(client: &mut Client, hold: &Hold) {
    let release = Op::Release { token: hold.token.clone() };
    match weighed(client, &ENDS) {
        End::Leave => {}
        End::ReleaseToTheGone => release_to_the_gone(client, hold, &release),
        End::Release => {
            client.insist(&hold.lock, &release);
        }
        End::ReleaseTwice => {
            client.insist(&hold.lock, &release);
            client.ask(&hold.lock, release);
        }
        End::ReleaseAndRenew => {
            client.insist(&hold.lock, &release);
            let by = Proof::Token(hold.token.clone());
            client.ask(&hold.lock, Op::Renew { by, ttl_ms: hold.ttl_ms });
        }
    }
}

/// A request that waits on a connection of its own, whose client may go away.
struct Waiting {
    ground: Arc<Ground>,
    ask: Ask,
    conn: Conn,
    sent: Instant,
}

impl Waiting {
    /// Sends it. `None` if nothing of it went out.
    fn send(client: &mut Client, lock: &str) -> Option<Self> {
        let ttl_ms = client.dice.between(&(5_000..=7_000));
        let wait_ms = client.dice.between(&(5_000..=10_000));
        let op = Op::Acquire { ttl_ms, wait_ms, owner: None, request_id: None, queued_ms: 0 };
        let ask = Ask { at: client.node(), lock: lock.to_owned(), op, patience: Patience::Full };
        let ground = Arc::clone(&client.ground);
        let Ok(mut conn) = Conn::open(ask.at.address) else {
            ground.recorder.note_unreachable(ask.at.node, ground.us(now()));
            return None;
        };
        let sent = now();
        // What cannot be sent is lost: whoever looks for the answer sees that.
        let _lost = conn.send(&bytes_of(lock, &ask.op));
        Some(Self { ground, ask, conn, sent })
    }

    /// Waits until then, or until an answer begins to come: it is to be read at once, so that it counts as received
    /// when it was.
    fn pause_until(&self, until: Instant) {
        while !self.conn.has_bytes() && now() < until {
            pause_until(until.min(now() + LOOK_EVERY));
        }
    }

    /// The answer, if it is there already; else the client goes away, by a reset or a close.
    fn receive_or_go(mut self, transport: &Transport, way: Way) -> Option<Hold> {
        if was_refused(&self.ask.at, &self.conn) {
            self.ground.recorder.note_unreachable(self.ask.at.node, self.ground.us(now()));
            return None;
        }
        if self.conn.has_bytes() {
            let told = transport.receive(&self.ground, &self.ask, &mut self.conn, self.sent);
            return Hold::from(&self.ask.lock, &self.ask.op, &told);
        }
        match way {
            Way::Reset => self.conn.reset(),
            Way::Close => drop(self.conn),
        }
        let why = Lost::Abandoned { at_us: self.ground.us(now()) };
        transport.note(&self.ground, &self.ask, self.sent, None, Answer::Unknown { why });
        None
    }
}

/// How a client goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Reset,
    Close,
}

impl Way {
    fn any(client: &mut Client) -> Self {
        if client.dice.chance(50) { Self::Reset } else { Self::Close }
    }
}

/// Waits, and goes away; if the answer was quicker, it is taken as any other.
fn abandon(client: &mut Client, lock: &str) {
    let Some(waiting) = Waiting::send(client, lock) else { return };
    waiting.pause_until(now() + ms(client.dice.between(&(20..=600))));
    let way = Way::any(client);
    if let Some(hold) = waiting.receive_or_go(&client.transport, way) {
        keep(client, hold);
    }
}

/// Releases while another waits whose connection ends within milliseconds of it.
fn release_to_the_gone(client: &mut Client, hold: &Hold, release: &Op) {
    let Some(waiting) = Waiting::send(client, &hold.lock) else { return };
    waiting.pause_until(now() + ms(client.dice.between(&(20..=200))));
    let (way, transport) = (Way::any(client), Transport::new(client.number));
    let goes_at = now() + Duration::from_micros(client.dice.between(&(0..=6_000)));
    let going = thread::spawn(move || {
        waiting.pause_until(goes_at);
        waiting.receive_or_go(&transport, way)
    });
    client.insist(&hold.lock, release);
    if let Ok(Some(hold)) = going.join() {
        keep(client, hold);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::clock::secs;
    use crate::dice::Dice;
    use crate::history::Record;
    use crate::workload::{Crowd, Endpoint, Recorder};

    /// A node that answers one request with these bytes.
    fn answers_once(bytes: &'static [u8]) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(bytes).unwrap();
            // Until the client has gone.
            stream.read_to_end(&mut Vec::new())
        });
        Endpoint { node: 1, address, link: None }
    }

    #[test]
    fn an_answer_that_comes_before_the_client_goes_is_received_when_it_comes() {
        let endpoint = answers_once(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}");
        let crowd = Crowd { clients: 1, watchers: 0 };
        let ground = Ground::new(now(), "a".into(), 1, crowd, vec![endpoint], Recorder::default());
        let mut client = Client::new(0, Dice::new(1, 1), Arc::new(ground));
        let waiting = Waiting::send(&mut client, "a").unwrap();
        waiting.pause_until(now() + secs(60));
        assert!(waiting.receive_or_go(&client.transport, Way::Close).is_none());
        let records = client.ground.recorder.take().records;
        let [Record::Call(call)] = &records[..] else { panic!("{records:?}") };
        assert!(matches!(call.answer, Answer::Refused { status: 429, .. }), "{call:?}");
        assert!(call.received_us.unwrap() - call.sent_us < 30_000_000, "{call:?}");
    }
}
