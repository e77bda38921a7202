//! Waiters whose clients went away.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::api::{Api, fresh_request_id};
use crate::harness::clock::{NOISE, eventually, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
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
    let cluster = Cluster::start(3);
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

/// How long after the later of both C got the lock, if B's connection ends `offset_us` µs after A's release is sent.
/// `None` if the grant had reached B before it went away.
fn race(cluster: &Cluster, name: &str, through: Api, how: End, offset_us: i64) -> Option<Duration> {
    let Queue { a, b, c } = queue_up(cluster, name, through);
    let start: Instant = now() + ms(10);
    let shift = Duration::from_micros(offset_us.unsigned_abs());
    let (release_at, end_at) = if offset_us < 0 { (start + shift, start) } else { (start, start + shift) };
    let ending = client(move || {
        pause_until(end_at);
        let reached = b.has_bytes();
        end(b, how);
        (reached, now())
    });
    pause_until(release_at);
    through.release(name, &a.token).unwrap().must_be_ok();
    let released = now();
    let (reached, ended) = done(ending);
    let c = done(c);
    assert!(c.fence > a.fence, "{a:?} {c:?}");
    let took = c.received.saturating_duration_since(released.max(ended));
    assert!(took <= TTL + secs(1) + NOISE, "a grant that nobody received lived for {took:?}");
    through.release(name, &c.token).unwrap().must_be_ok();
    (!reached).then_some(took)
}

#[test]
fn a_grant_that_raced_the_end_of_its_connection_is_given_back() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let apis = [cluster.api(leader), cluster.api(cluster.others(leader)[0])];
    let rounds = scaled(80, 500);
    let mut not_given_back = 0;
    for round in 0..rounds {
        let through = apis[usize::try_from(round % 2).unwrap()];
        let how = if round / 2 % 2 == 0 { End::Reset } else { End::Close };
        // Every offset within ±5 ms comes up, in steps of 37 µs.
        let offset_us = i64::try_from(round * 37 * 27 % 10_000).unwrap() - 5_000;
        let took = race(&cluster, &format!("round {round}"), through, how, offset_us);
        not_given_back += u64::from(took.is_some_and(|took| took > secs(1) + NOISE));
    }
    // A grant may reach B's socket between the last look at it and its end: nobody can tell that from a grant received.
    assert!(not_given_back <= rounds / 10, "{not_given_back} of {rounds} grants lived until their TTL");
    cluster.wait_until_waiting(0);
}

#[test]
fn a_waiter_whose_packets_are_dropped_blocks_no_longer_than_its_ttl() {
    let cluster = Cluster::start(3);
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
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    for (first_at, retry_at) in [(0, 0), (0, 1), (1, 2), (2, 0)] {
        let name = format!("from {first_at} to {retry_at}");
        let a = take(&apis[0], &name, secs(60));
        let body = json!({"name": name, "ttl_ms": 20_000, "wait_ms": 30_000, "request_id": fresh_request_id()});
        let first = apis[first_at].start_acquire(&body).unwrap();
        cluster.wait_until_waiting(1);
        let mut retry = apis[retry_at].start_acquire(&body).unwrap();
        // It takes the place over: nothing to be seen but one waiter, and the older connection may end.
        let watched = now() + ms(200);
        eventually("the retry arrives", secs(2), || (now() > watched && cluster.waiting() == 1).then_some(()));
        first.reset();
        let watched = now() + ms(200);
        eventually("the end arrives", secs(2), || (now() > watched).then_some(()));
        assert_eq!(cluster.waiting(), 1, "the retry still waits");
        apis[0].release(&name, &a.token).unwrap().must_be_ok();
        let granted = Held::from(&retry.answer(secs(5)).unwrap().must_be_ok());
        pause_until(granted.received + ms(1_200));
        let seen = insist(&apis, secs(5), |api| api.get(&name)).must_be_ok();
        assert_eq!(seen.holder_fences(), [granted.fence], "B keeps what its retry got");
        insist(&apis, secs(5), |api| api.renew(&name, &granted.token, 1_000)).must_be_ok();
    }
}
