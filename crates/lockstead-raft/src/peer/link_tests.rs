use std::future::pending;

use lockstead_core::ClusterId;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::peer::PeerService;
use crate::peer::fakes::{
    Asked, FakeNode, PATIENCE, acquire, card, dialer, give_back, granted, lock_named, member_at, next, serve, welcome,
    within,
};
use crate::peer::hello::{Hello, HelloAnswer};
use crate::peer::requests::{CALLS_MAX, LinkAnswer, LinkCall};
use crate::peer::wire::Pending;

const HOME: ClusterId = ClusterId(7);

fn links(timing: LinkTiming) -> RequestLinks {
    RequestLinks::with_timing(dialer(2, Some(HOME)), TaskTracker::new(), CancellationToken::new(), timing)
}

type Submitted = JoinHandle<Result<ForwardAnswer, LinkError>>;

fn submit(links: &RequestLinks, member: &Member, name: &str) -> Submitted {
    let (links, member, op) = (links.clone(), member.clone(), acquire(name));
    tokio::spawn(async move { links.submit_to(1, &member, op, PATIENCE, pending()).await })
}

/// An acceptor that the test plays frame by frame.
struct Script {
    listener: TcpListener,
    member: Member,
}

impl Script {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = member_at(1, listener.local_addr().unwrap());
        Self { listener, member }
    }

    async fn accept(&self) -> Connection {
        let mut connection = Connection::new(within(self.listener.accept()).await.unwrap().0).unwrap();
        connection.receive::<Hello>().await.unwrap();
        connection.send(&HelloAnswer::Welcome(welcome(Some(HOME), card(1)))).await.unwrap();
        connection
    }
}

/// The next call, which must come, pings aside.
async fn call(connection: &mut Connection) -> LinkCall<'static> {
    let next_call = async {
        loop {
            match connection.receive().await.unwrap() {
                LinkCall::Ping => connection.send(&LinkAnswer::Pong).await.unwrap(),
                call => return call,
            }
        }
    };
    within(next_call).await
}

async fn submitted(connection: &mut Connection) -> (u64, String) {
    match call(connection).await {
        LinkCall::Submit { call, op, .. } => (call, op.lock().name().to_owned()),
        other => panic!("{other:?}"),
    }
}

async fn decided(asked: &mut tokio::sync::mpsc::UnboundedReceiver<Asked>) -> (String, oneshot::Sender<ForwardAnswer>) {
    match next(asked).await {
        Asked::Decide { lock, answer, .. } => (lock.name().to_owned(), answer),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn answers_come_in_any_order_over_one_connection() {
    let node = serve(FakeNode::new(1, Some(HOME))).await;
    let (links, mut asked) = (links(LinkTiming::default()), node.service.asked());
    let calls: Vec<Submitted> = (0..50).map(|i| submit(&links, &node.member, &format!("l{i}"))).collect();
    let mut open = Vec::new();
    for _ in 0..50 {
        open.push(decided(&mut asked).await);
    }
    for (name, answer) in open.into_iter().rev() {
        answer.send(granted(name[1..].parse().unwrap(), true)).unwrap();
    }
    for (fence, call) in calls.into_iter().enumerate() {
        assert_eq!(within(call).await.unwrap(), Ok(granted(fence as u64, true)));
    }
}

#[tokio::test]
async fn the_time_left_travels() {
    let node = serve(FakeNode::new(1, Some(HOME))).await;
    let (links, mut asked) = (links(LinkTiming::default()), node.service.asked());
    let call = submit(&links, &node.member, "l");
    let Asked::Decide { time_left, answer, .. } = next(&mut asked).await else { panic!() };
    assert!(time_left <= PATIENCE && time_left > PATIENCE / 2, "{time_left:?}");
    answer.send(ForwardAnswer::CatchingUp).unwrap();
    assert_eq!(within(call).await.unwrap(), Ok(ForwardAnswer::CatchingUp));
}

#[tokio::test]
async fn a_dropped_call_is_withdrawn_at_the_acceptor() {
    let node = serve(FakeNode::new(1, Some(HOME))).await;
    let (links, mut asked) = (links(LinkTiming::default()), node.service.asked());
    let call = submit(&links, &node.member, "l");
    let (_, answer) = decided(&mut asked).await;
    call.abort();
    assert!(matches!(next(&mut asked).await, Asked::Withdrawn(lock) if lock == lock_named("l")));
    drop(answer);
    // The link is in use still, and forgets the call.
    let call = submit(&links, &node.member, "m");
    decided(&mut asked).await.1.send(granted(1, true)).unwrap();
    assert_eq!(within(call).await.unwrap(), Ok(granted(1, true)));
    let wire = links.link(1, &node.member).wire().await.unwrap();
    assert_eq!(lock(&wire.state).calls.len(), 0);
}

#[tokio::test]
async fn a_fresh_grant_for_a_dropped_call_is_given_back() {
    for (fresh, expected) in [(true, Some(LinkCall::GiveBack(give_back("l", 5)))), (false, None)] {
        let script = Script::new().await;
        let links = links(LinkTiming::default());
        let first = submit(&links, &script.member, "l");
        let mut connection = script.accept().await;
        let (number, _) = submitted(&mut connection).await;
        first.abort();
        assert_eq!(call(&mut connection).await, LinkCall::Cancel { call: number });
        // The answer crossed the cancel.
        connection.send(&LinkAnswer::Answered { call: number, answer: granted(5, fresh) }).await.unwrap();
        if let Some(expected) = expected {
            assert_eq!(call(&mut connection).await, expected);
        }
        let second = submit(&links, &script.member, "m");
        let (second_number, name) = submitted(&mut connection).await;
        assert_eq!((second_number > number, &*name), (true, "m"));
        connection.send(&LinkAnswer::Answered { call: second_number, answer: granted(6, true) }).await.unwrap();
        assert_eq!(within(second).await.unwrap(), Ok(granted(6, true)));
    }
}

#[tokio::test]
async fn a_grant_that_arrived_but_was_never_read_is_given_back() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let link = links.link(1, &script.member);
    let (wire, mut connection) = tokio::join!(link.wire(), script.accept());
    let wire = wire.unwrap();
    let pending = wire.submit(acquire("l"), Instant::now() + PATIENCE).unwrap();
    let (number, _) = submitted(&mut connection).await;
    wire.deliver(number, granted(5, true)).unwrap();
    drop(pending);
    assert_eq!(call(&mut connection).await, LinkCall::GiveBack(give_back("l", 5)));
}

#[tokio::test]
async fn a_grant_that_was_read_is_the_callers() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let first = submit(&links, &script.member, "l");
    let mut connection = script.accept().await;
    let (number, _) = submitted(&mut connection).await;
    connection.send(&LinkAnswer::Answered { call: number, answer: granted(5, true) }).await.unwrap();
    assert_eq!(within(first).await.unwrap(), Ok(granted(5, true)));
    // What is sent next is what the caller asks for, and nothing before it.
    links.give_back_to(1, &script.member, give_back("l", 5));
    assert_eq!(call(&mut connection).await, LinkCall::GiveBack(give_back("l", 5)));
    links.give_back_to(1, &script.member, give_back("l", 6));
    assert_eq!(call(&mut connection).await, LinkCall::GiveBack(give_back("l", 6)));
}

#[tokio::test]
async fn a_call_dropped_before_its_turn_is_never_sent() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let link = links.link(1, &script.member);
    let (wire, mut connection) = tokio::join!(link.wire(), script.accept());
    let wire = wire.unwrap();
    // This runtime has one thread, so the writer has no turn before the next await.
    drop(wire.submit(acquire("dropped"), Instant::now() + PATIENCE).unwrap());
    let _kept = wire.submit(acquire("kept"), Instant::now() + PATIENCE).unwrap();
    assert_eq!(submitted(&mut connection).await.1, "kept");
}

#[tokio::test]
async fn a_connection_cut_after_the_request_is_lost_and_the_next_one_is_dialed() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let first = submit(&links, &script.member, "l");
    let mut connection = script.accept().await;
    submitted(&mut connection).await;
    drop(connection);
    assert_eq!(within(first).await.unwrap(), Err(LinkError::Lost));
    let second = submit(&links, &script.member, "m");
    let mut connection = script.accept().await;
    let (number, _) = submitted(&mut connection).await;
    connection.send(&LinkAnswer::Answered { call: number, answer: ForwardAnswer::NoLeader }).await.unwrap();
    assert_eq!(within(second).await.unwrap(), Ok(ForwardAnswer::NoLeader));
}

#[tokio::test]
async fn what_never_left_this_node_is_not_sent() {
    let nobody = Member { peer: "127.0.0.1:1".to_owned(), ..Member::default() };
    assert_eq!(within(submit(&links(LinkTiming::default()), &nobody, "l")).await.unwrap(), Err(LinkError::NotSent));

    let stranger = serve(FakeNode::new(1, Some(ClusterId(8)))).await;
    let refused = submit(&links(LinkTiming::default()), &stranger.member, "l");
    assert_eq!(within(refused).await.unwrap(), Err(LinkError::NotSent));

    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let link = links.link(1, &script.member);
    let (wire, connection) = tokio::join!(link.wire(), script.accept());
    let wire = wire.unwrap();
    let mut queued = wire.submit(acquire("l"), Instant::now() + PATIENCE).unwrap();
    wire.close();
    assert!(matches!(within(&mut queued.answer).await.unwrap(), Err(LinkError::NotSent)));
    assert!(matches!(wire.submit(acquire("l"), Instant::now() + PATIENCE), Err(LinkError::NotSent)));
    drop(connection);
}

#[tokio::test]
async fn a_stranger_that_was_refused_can_be_a_friend_later() {
    let node = FakeNode::new(1, None);
    let served = serve(node.clone()).await;
    let links = links(LinkTiming::default());
    assert_eq!(within(submit(&links, &served.member, "l")).await.unwrap(), Err(LinkError::NotSent));
    node.adopt_cluster(HOME).unwrap();
    let call = submit(&links, &served.member, "l");
    decided(&mut node.asked()).await.1.send(granted(1, true)).unwrap();
    assert_eq!(within(call).await.unwrap(), Ok(granted(1, true)));
}

#[tokio::test]
async fn a_silent_acceptor_is_lost_and_a_slow_one_is_not() {
    let timing = LinkTiming { ping_every: Duration::from_millis(10), silence_max: Duration::from_millis(200) };
    let script = Script::new().await;
    let silent_links = links(timing);
    let silent = submit(&silent_links, &script.member, "l");
    let _open = script.accept().await;
    assert_eq!(within(silent).await.unwrap(), Err(LinkError::Lost));

    let slow_links = links(timing);
    let slow = submit(&slow_links, &script.member, "l");
    let mut connection = script.accept().await;
    let (number, _) = submitted(&mut connection).await;
    // Traffic the other way is no sign of the acceptor's life, and no reason not to ask for one.
    let (busy_links, busy_member) = (slow_links.clone(), script.member.clone());
    let busy = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(timing.ping_every / 4);
        loop {
            ticks.tick().await;
            busy_links.give_back_to(1, &busy_member, give_back("l", 1));
        }
    });
    // 40 pings take twice the time that silence may last.
    let mut pings = 0;
    while pings < 40 {
        if within(connection.receive::<LinkCall<'_>>()).await.unwrap() == LinkCall::Ping {
            pings += 1;
            connection.send(&LinkAnswer::Pong).await.unwrap();
        }
    }
    busy.abort();
    connection.send(&LinkAnswer::Answered { call: number, answer: ForwardAnswer::NoLeader }).await.unwrap();
    assert_eq!(within(slow).await.unwrap(), Ok(ForwardAnswer::NoLeader));
}

#[tokio::test]
async fn time_that_runs_out_unanswered_is_an_unknown_outcome() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let op = acquire("l");
    let call_it = links.submit_to(1, &script.member, op, Duration::from_millis(100), pending());
    let (answered, mut connection) = tokio::join!(within(call_it), script.accept());
    assert_eq!(answered, Err(LinkError::Lost));
    let (number, _) = submitted(&mut connection).await;
    assert_eq!(call(&mut connection).await, LinkCall::Cancel { call: number });
}

#[tokio::test]
async fn what_is_given_up_before_there_is_a_connection_was_not_sent() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let call_it = links.submit_to(1, &script.member, acquire("l"), PATIENCE, async {
        // Whoever is dialed says nothing.
        drop(within(script.listener.accept()).await);
    });
    assert_eq!(within(call_it).await, Err(LinkError::NotSent));
}

#[tokio::test]
async fn what_is_given_up_after_it_was_sent_is_an_unknown_outcome() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let (sender, receiver) = oneshot::channel::<()>();
    let given_up = async { drop(receiver.await) };
    let call_it = links.submit_to(1, &script.member, acquire("l"), PATIENCE, given_up);
    let played = async {
        let mut connection = script.accept().await;
        let (number, _) = submitted(&mut connection).await;
        drop(sender);
        assert_eq!(call(&mut connection).await, LinkCall::Cancel { call: number });
    };
    let (answered, ()) = tokio::join!(within(call_it), played);
    assert_eq!(answered, Err(LinkError::Lost));
}

#[tokio::test]
async fn an_answer_to_no_call_ends_the_connection() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let first = submit(&links, &script.member, "l");
    let mut connection = script.accept().await;
    let (number, _) = submitted(&mut connection).await;
    connection.send(&LinkAnswer::Answered { call: number + 1, answer: granted(5, true) }).await.unwrap();
    assert_eq!(within(first).await.unwrap(), Err(LinkError::Lost));
}

#[tokio::test]
async fn a_link_takes_no_more_calls_than_its_bound() {
    let script = Script::new().await;
    let links = links(LinkTiming::default());
    let link = links.link(1, &script.member);
    let (wire, _connection) = tokio::join!(link.wire(), script.accept());
    let wire = wire.unwrap();
    let ends = Instant::now() + PATIENCE;
    let mut pending: Vec<Pending> = (0..CALLS_MAX).map(|_| wire.submit(acquire("l"), ends).unwrap()).collect();
    assert!(matches!(wire.submit(acquire("l"), ends), Err(LinkError::NotSent)));
    pending.pop();
    assert!(wire.submit(acquire("l"), ends).is_ok());
}

#[tokio::test]
async fn a_member_that_moved_is_dialed_at_its_new_address() {
    let links = links(LinkTiming::default());
    let old = Member { peer: "127.0.0.1:1".to_owned(), incarnation: card(1).incarnation, ..Member::default() };
    assert_eq!(within(submit(&links, &old, "l")).await.unwrap(), Err(LinkError::NotSent));
    let script = Script::new().await;
    let moved = submit(&links, &script.member, "l");
    let mut connection = script.accept().await;
    let (number, _) = submitted(&mut connection).await;
    connection.send(&LinkAnswer::Answered { call: number, answer: ForwardAnswer::NoLeader }).await.unwrap();
    assert_eq!(within(moved).await.unwrap(), Ok(ForwardAnswer::NoLeader));
}
