use lockstead_core::ClusterId;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::peer::fakes::{
    Asked, FakeNode, Served, acquire, dialer, give_back, granted, lock_named, next, serve, socket_pair, within,
};
use crate::peer::hello::Purpose;

const HOME: ClusterId = ClusterId(7);

/// A node, what it is asked, and a request link to it that the test plays frame by frame.
async fn linked() -> (Served, mpsc::UnboundedReceiver<Asked>, Connection) {
    let node = serve(FakeNode::new(1, Some(HOME))).await;
    let from = dialer(2, Some(HOME));
    let dialed = from.dial(1, &node.member, Purpose::Requests, from.dial_time_max()).await;
    let asked = node.service.asked();
    (node, asked, dialed.unwrap())
}

fn submit(call: u64, name: &str) -> LinkCall<'static> {
    LinkCall::Submit { call, op: Cow::Owned(acquire(name)), time_left_ms: 5_000 }
}

async fn decided(asked: &mut mpsc::UnboundedReceiver<Asked>) -> oneshot::Sender<ForwardAnswer> {
    match next(asked).await {
        Asked::Decide { answer, .. } => answer,
        other => panic!("{other:?}"),
    }
}

async fn receive(connection: &mut Connection) -> LinkAnswer {
    within(connection.receive()).await.unwrap()
}

fn desk() -> (Arc<Desk<FakeNode>>, mpsc::UnboundedReceiver<Asked>) {
    let service = FakeNode::new(1, Some(HOME));
    let asked = service.asked();
    (Arc::new(Desk { service, state: Mutex::default(), wake: Notify::new(), room: Notify::new() }), asked)
}

#[test]
fn a_submit_has_these_bytes() {
    let mut bytes = Vec::new();
    append_frame(&mut bytes, &submit(9, "l")).unwrap();
    let default_l = b"default\0l";
    let head =
        [0, 0, 0, 25, 1, /* submit */ 0, /* call */ 9, /* acquire */ 0, /* name's length */ 9];
    assert_eq!(bytes[..9], head);
    assert_eq!(&bytes[9..18], default_l);
    let ttl_30_s = [251, 0x30, 0x75];
    assert_eq!(bytes[18..21], ttl_30_s);
    assert_eq!(bytes[21..], [/* wait, queued, owner, id, labels */ 0, 0, 0, 0, 0, /* time left */ 251, 0x88, 0x13]);
}

#[tokio::test]
async fn each_call_gets_its_answer() {
    let (_node, mut asked, mut connection) = linked().await;
    connection.send(&submit(4, "a")).await.unwrap();
    connection.send(&LinkCall::Ping).await.unwrap();
    assert_eq!(receive(&mut connection).await, LinkAnswer::Pong);
    decided(&mut asked).await.send(granted(1, true)).unwrap();
    assert_eq!(receive(&mut connection).await, LinkAnswer::Answered { call: 4, answer: granted(1, true) });
}

#[tokio::test]
async fn a_cancel_withdraws_the_request_and_says_so() {
    let (_node, mut asked, mut connection) = linked().await;
    connection.send(&submit(4, "a")).await.unwrap();
    let _answer = decided(&mut asked).await;
    connection.send(&LinkCall::Cancel { call: 4 }).await.unwrap();
    assert!(matches!(next(&mut asked).await, Asked::Withdrawn(lock) if lock == lock_named("a")));
    assert_eq!(receive(&mut connection).await, LinkAnswer::Withdrawn { call: 4 });
    // Too late or unknown: nothing is said, and the link goes on.
    connection.send(&LinkCall::Cancel { call: 4 }).await.unwrap();
    connection.send(&LinkCall::Ping).await.unwrap();
    assert_eq!(receive(&mut connection).await, LinkAnswer::Pong);
}

#[tokio::test]
async fn a_lost_connection_withdraws_all_its_requests() {
    let (_node, mut asked, mut connection) = linked().await;
    let mut answers = Vec::new();
    for call in 0..3 {
        connection.send(&submit(call, &format!("l{call}"))).await.unwrap();
        answers.push(decided(&mut asked).await);
    }
    drop(connection);
    let mut withdrawn = Vec::new();
    for _ in 0..3 {
        match next(&mut asked).await {
            Asked::Withdrawn(lock) => withdrawn.push(lock.name().to_owned()),
            other => panic!("{other:?}"),
        }
    }
    withdrawn.sort();
    assert_eq!(withdrawn, ["l0", "l1", "l2"]);
}

#[tokio::test]
async fn a_give_back_reaches_the_node() {
    let (_node, mut asked, mut connection) = linked().await;
    connection.send(&LinkCall::GiveBack(give_back("a", 5))).await.unwrap();
    assert!(matches!(next(&mut asked).await, Asked::GiveBack(back) if back == give_back("a", 5)));
}

#[tokio::test]
async fn a_call_number_in_use_ends_the_connection() {
    let (_node, mut asked, mut connection) = linked().await;
    connection.send(&submit(4, "a")).await.unwrap();
    let _answer = decided(&mut asked).await;
    connection.send(&submit(4, "b")).await.unwrap();
    assert_eq!(within(connection.receive::<LinkAnswer>()).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(matches!(next(&mut asked).await, Asked::Withdrawn(lock) if lock == lock_named("a")));
}

#[tokio::test]
async fn a_fresh_grant_that_was_not_handed_to_the_socket_is_given_back() {
    let (desk, mut asked) = desk();
    let tracker = TaskTracker::new();
    for (call, fresh) in [(1, true), (2, false), (3, true)] {
        desk.start(&tracker, call, acquire("a"), Duration::from_secs(5)).unwrap();
        let answer = decided(&mut asked).await;
        answer.send(granted(call, fresh)).unwrap();
    }
    tracker.close();
    within(tracker.wait()).await;
    desk.close();
    assert!(matches!(next(&mut asked).await, Asked::GiveBack(back) if back == give_back("a", 1)));
    assert!(matches!(next(&mut asked).await, Asked::GiveBack(back) if back == give_back("a", 3)));
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn what_was_handed_to_the_socket_is_the_dialers_to_give_back() {
    let (desk, mut asked) = desk();
    let tracker = TaskTracker::new();
    desk.start(&tracker, 1, acquire("a"), Duration::from_secs(5)).unwrap();
    decided(&mut asked).await.send(granted(1, true)).unwrap();
    tracker.close();
    within(tracker.wait()).await;
    let mut buffer = Vec::new();
    desk.take_unsent(&mut buffer);
    assert!(!buffer.is_empty());
    desk.close();
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_grant_decided_as_its_call_is_cancelled_is_given_back() {
    let (desk, mut asked) = desk();
    let tracker = TaskTracker::new();
    desk.start(&tracker, 1, acquire("a"), Duration::from_secs(5)).unwrap();
    let _undecided = decided(&mut asked).await;
    desk.cancel(1).unwrap();
    // The future had its answer in hand when the cancel came.
    desk.answer(1, &lock_named("a"), granted(1, true));
    assert!(matches!(next(&mut asked).await, Asked::GiveBack(back) if back == give_back("a", 1)));
    let mut expected = Vec::new();
    append_frame(&mut expected, &LinkAnswer::Withdrawn { call: 1 }).unwrap();
    assert_eq!(lock(&desk.state).unsent, expected);
}

#[tokio::test]
async fn a_silent_dialer_is_dropped_with_its_requests() {
    let (near, far) = socket_pair().await;
    let service = FakeNode::new(1, Some(HOME));
    let (mut asked, tracker) = (service.asked(), TaskTracker::new());
    let timing = LinkTiming { silence_max: Duration::from_millis(50), ..LinkTiming::default() };
    let serving = tokio::spawn(serve_requests(Connection::new(far).unwrap(), service, tracker, timing));
    let mut dialer = Connection::new(near).unwrap();
    dialer.send(&submit(1, "a")).await.unwrap();
    let _answer = decided(&mut asked).await;
    assert_eq!(within(serving).await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(matches!(next(&mut asked).await, Asked::Withdrawn(lock) if lock == lock_named("a")));
}
