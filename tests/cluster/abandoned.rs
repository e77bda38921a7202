//! Waiters whose clients went away.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::api::{Api, fresh_request_id};
use crate::harness::clock::{NOISE, ms, now, pause_until, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::gather::{client, done};
use crate::harness::http::Conn;
use crate::harness::locker::{Held, insist, take, waiting_body};
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::scale::scaled;

/// The TTL that the abandoned waiter asked for.
const TTL: Duration = secs(3);

#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Close,
}

fn end(conn: Conn, end: End) {
    match end {
        End::Reset => conn.reset(),
        End::Close => drop(conn),
    }
}

/// A holds the lock, B waits on a bare connection, and C behind B.
struct Queue {
    a: Held,
    b: Conn,
    c: JoinHandle<Held>,
}

fn queue_up(cluster: &Cluster, name: &str, through: Api) -> Queue {
    let a = take(&through, name, secs(60));
    let b = through.start_acquire(&waiting_body(name, TTL, secs(30))).unwrap();
    cluster.wait_until_waiting(1);
    let body = waiting_body(name, secs(60), secs(30));
    let c = client(move || Held::from(&through.acquire(&body).unwrap().must_be_ok()));
    cluster.wait_until_waiting(2);
    Queue { a, b, c }
}

#[test]
fn a_waiter_whose_connection_ended_is_skipped() {
    let cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    for through in [leader, cluster.others(leader)[0]] {
        for how in [End::Reset, End::Close] {
            let api = cluster.api(through);
            let Queue { a, b, c } = queue_up(&cluster, "L", api);
            end(b, how);
            cluster.wait_until_waiting(1);
            let released = now();
            api.release("L", &a.token).unwrap().must_be_ok();
            let c = done(c);
            let took = c.received.duration_since(released);
            assert!(took <= ms(500) + NOISE, "C waited {took:?} after B's {how:?} through {through}");
            api.release("L", &c.token).unwrap().must_be_ok();
        }
    }
    cluster.wait_until_waiting(0);
}

/// What came of a race between a grant and the end of its connection.
#[derive(Clone, Copy, Debug)]
enum Raced {
    /// The grant reached B while it was still there: B released it as any holder does.
    Received,
    /// B was gone; C got the lock so long after the later of A's release and B's end.
    Gone(Duration),
}

/// Ends B's connection `offset_us` µs after A's release is sent.
fn race(cluster: &Cluster, name: &str, through: Api, how: End, offset_us: i64) -> Raced {
    let Queue { a, mut b, c } = queue_up(cluster, name, through);
    let start: Instant = now() + ms(10);
    let shift = Duration::from_micros(offset_us.unsigned_abs());
    let (release_at, end_at) = if offset_us < 0 { (start + shift, start) } else { (start, start + shift) };
    let owner = name.to_owned();
    let ending = client(move || {
        pause_until(end_at);
        if !b.has_bytes() {
            end(b, how);
            return (None, now());
        }
        let held = Held::from(&b.answer(secs(5)).unwrap().must_be_ok());
        through.release(&owner, &held.token).unwrap().must_be_ok();
        (Some(held), now())
    });
    pause_until(release_at);
    through.release(name, &a.token).unwrap().must_be_ok();
    let released = now();
    let (received, ended) = done(ending);
    let c = done(c);
    assert!(c.fence > received.as_ref().map_or(a.fence, |held| held.fence), "{a:?} {received:?} {c:?}");
    let took = c.received.saturating_duration_since(released.max(ended));
    assert!(took <= TTL + secs(1) + NOISE, "a grant that nobody received lived for {took:?}");
    through.release(name, &c.token).unwrap().must_be_ok();
    if received.is_some() { Raced::Received } else { Raced::Gone(took) }
}

#[test]
fn a_grant_that_raced_the_end_of_its_connection_is_given_back() {
    // No proxy before the nodes: it would take a grant in when its client is gone already, and the node cannot know.
    let cluster = Setup::of(3).with_proxied_peers().start();
    let leader = cluster.leader();
    let apis = [cluster.api(leader), cluster.api(cluster.others(leader)[0])];
    let rounds = scaled(160, 500);
    let (mut received, mut kept) = (0, 0);
    for round in 0..rounds {
        let through = apis[usize::try_from(round % 2).unwrap()];
        let how = if round / 2 % 2 == 0 { End::Reset } else { End::Close };
        // Offsets from all over ±5 ms.
        let offset_us = i64::try_from(round * 37 * 27 % 10_000).unwrap() - 5_000;
        match race(&cluster, &format!("round {round}"), through, how, offset_us) {
            Raced::Received => received += 1,
            Raced::Gone(took) => kept += u64::from(took > secs(1) + NOISE),
        }
    }
    assert!(received > 0 && received < rounds, "the case needs both outcomes: {received} of {rounds}");
    // A grant may reach B's socket between the last look at it and its end. The node has written it then, and cannot
    // know that nobody reads it.
    assert!(kept <= rounds / 20, "{kept} of {rounds} grants lived until their TTL");
    cluster.wait_until_waiting(0);
}

#[test]
fn a_waiter_whose_packets_are_dropped_blocks_no_longer_than_its_ttl() {
    let cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    for through in [leader, cluster.others(leader)[0]] {
        let api = cluster.api(through);
        let proxy = Proxy::to(api.address);
        let a = take(&api, "L", secs(60));
        let b = Api::at(proxy.address()).start_acquire(&waiting_body("L", ms(1_000), secs(30))).unwrap();
        cluster.wait_until_waiting(1);
        proxy.set(Mode::Stall);
        let c = client(move || Held::from(&api.acquire(&waiting_body("L", secs(60), secs(30))).unwrap().must_be_ok()));
        cluster.wait_until_waiting(2);
        api.release("L", &a.token).unwrap().must_be_ok();
        let released = now();
        let c = done(c);
        let took = c.received.saturating_duration_since(released);
        assert!(took <= ms(1_000) + secs(1) + NOISE, "C waited {took:?} for a client that nobody hears");
        drop(b);
        api.release("L", &c.token).unwrap().must_be_ok();
    }
}

#[test]
fn a_retry_takes_a_waiting_request_over_and_keeps_the_grant() {
    let cluster = Cluster::through_proxies(3);
    let apis = cluster.apis();
    for (first_at, retry_at) in [(0, 0), (0, 1), (1, 2), (2, 0)] {
        let name = format!("from {first_at} to {retry_at}");
        let a = take(&apis[0], &name, secs(60));
        let body = json!({"name": name, "ttl_ms": 20_000, "wait_ms": 30_000, "request_id": fresh_request_id()});
        let first = apis[first_at].start_acquire(&body).unwrap();
        cluster.wait_until_waiting(1);
        let mut retry = apis[retry_at].start_acquire(&body).unwrap();
        // Two requests, one place in the queue.
        cluster.wait_until_waiting(2);
        let seen = apis[0].get(&name).unwrap().must_be_ok();
        assert_eq!(seen.body["waiters"].as_array().map(Vec::len), Some(1), "{seen:?}");
        first.reset();
        cluster.wait_until_waiting(1);
        apis[0].release(&name, &a.token).unwrap().must_be_ok();
        let granted = Held::from(&retry.answer(secs(5)).unwrap().must_be_ok());
        pause_until(granted.received + ms(1_200));
        let seen = insist(&apis, secs(5), |api| api.get(&name)).must_be_ok();
        assert_eq!(seen.holder_fences(), [granted.fence], "B keeps what its retry got");
        insist(&apis, secs(5), |api| api.renew(&name, &granted.token, 1_000)).must_be_ok();
    }
}
