use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use lockstead_core::ClusterId;
use tokio::net::TcpListener;

use super::*;
use crate::peer::fakes::{FakeNode, FakeRaft, card, dialer, member_at, serve_raft, welcome, within};
use crate::peer::frame::append_frame;
use crate::peer::hello::{Hello, HelloAnswer, NodeCard};
use crate::peer::lock;
use crate::types::{BatchBytes, CommittedLeaderId};

const HOME: ClusterId = ClusterId(7);
const TTL: Duration = Duration::from_secs(5);

async fn network(member: &Member) -> PeerNetwork {
    PeerNetworkFactory::new(dialer(2, Some(HOME))).new_client(1, member).await
}

fn option() -> RPCOption {
    RPCOption::new(TTL)
}

fn vote() -> Vote {
    Vote::new(3, 2)
}

fn vote_request() -> VoteRequest<TypeConfig> {
    VoteRequest::new(vote(), None)
}

fn log_id(index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(3), index)
}

fn append_of(batch_sizes: &[usize]) -> AppendEntriesRequest<TypeConfig> {
    let entry = |(index, size): (u64, &usize)| {
        let payload = EntryPayload::Normal(BatchBytes(Arc::from(vec![5; *size])));
        Entry { log_id: log_id(index), payload }
    };
    let entries = (1..).zip(batch_sizes).map(entry).collect();
    AppendEntriesRequest { vote: vote(), prev_log_id: None, entries, leader_commit: None }
}

fn snapshot() -> Snapshot {
    Snapshot { meta: SnapshotMeta::default(), snapshot: vec![1, 2, 3] }
}

#[tokio::test]
async fn each_kind_of_call_reaches_its_own_method() {
    let raft = FakeRaft::default();
    let node = serve_raft(FakeNode::new(1, Some(HOME)), raft.clone()).await;
    let mut network = network(&node.member).await;
    let transfer = TransferLeaderRequest::new(vote(), 1, None);
    assert!(network.vote(vote_request(), option()).await.unwrap().vote_granted);
    assert!(!network.pre_vote(vote_request(), option()).await.unwrap().vote_granted);
    assert_eq!(network.transfer_leader(transfer, option()).await.unwrap(), Ok(()));
    assert!(network.append_entries(append_of(&[10, 20]), option()).await.unwrap().is_success());
    let never = std::future::pending();
    assert_eq!(network.full_snapshot(vote(), snapshot(), never, option()).await.unwrap().vote, vote());
    assert_eq!(*lock(&raft.votes_asked), ["vote", "pre-vote", "transfer"]);
    assert_eq!(*lock(&raft.appended), [Some(log_id(2))]);
    assert_eq!(*lock(&raft.installed), [vec![1, 2, 3]]);
}

#[tokio::test]
async fn a_node_that_may_not_vote_is_not_even_asked() {
    let raft = FakeRaft { no_votes: true, ..FakeRaft::default() };
    let node = serve_raft(FakeNode::new(1, Some(HOME)), raft.clone()).await;
    let mut network = network(&node.member).await;
    let transfer = TransferLeaderRequest::new(vote(), 1, None);
    let check = |error: RPCError<TypeConfig>| {
        assert!(matches!(&error, RPCError::Unreachable(_)) && error.to_string().contains("does not vote"), "{error}");
    };
    check(network.vote(vote_request(), option()).await.unwrap_err());
    check(network.pre_vote(vote_request(), option()).await.unwrap_err());
    check(network.transfer_leader(transfer, option()).await.unwrap_err());
    assert!(network.append_entries(append_of(&[10]), option()).await.unwrap().is_success());
    assert!(lock(&raft.votes_asked).is_empty());
}

#[tokio::test]
async fn who_cannot_be_dialed_is_unreachable() {
    let nobody = Member { peer: "127.0.0.1:1".to_owned(), ..Member::default() };
    let refused = network(&nobody).await.vote(vote_request(), option()).await;
    assert!(matches!(refused, Err(RPCError::Unreachable(_))));
    let stranger = serve_raft(FakeNode::new(1, Some(ClusterId(8))), FakeRaft::default()).await;
    let refused = network(&stranger.member).await.vote(vote_request(), option()).await;
    assert!(matches!(refused, Err(RPCError::Unreachable(_))));
}

/// An acceptor that the test plays frame by frame.
async fn accept(listener: &TcpListener) -> Connection {
    let mut connection = Connection::new(within(listener.accept()).await.unwrap().0).unwrap();
    connection.receive::<Hello>().await.unwrap();
    connection.send(&HelloAnswer::Welcome(welcome(Some(HOME), card(1)))).await.unwrap();
    connection.trust();
    connection
}

async fn answer_next(connection: &mut Connection, shift: u64) {
    let (number, call): (u64, RaftCall) = within(connection.receive()).await.unwrap();
    assert!(matches!(call, RaftCall::Vote(_)));
    let answer: Result<_, String> = Ok(RaftAnswer::Vote(VoteResponse::new(vote(), None, true)));
    connection.send(&(number - shift, answer)).await.unwrap();
}

#[tokio::test]
async fn a_late_answer_is_never_taken_for_a_later_calls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut network = network(&member_at(1, listener.local_addr().unwrap())).await;
    // Dropped before its answer: the connection goes with it.
    let dropped = network.vote(vote_request(), option());
    let mut first = tokio::select! {
        _ = dropped => panic!("an answer from nowhere"),
        connection = async {
            let mut connection = accept(&listener).await;
            let (_, call): (u64, RaftCall) = connection.receive().await.unwrap();
            assert!(matches!(call, RaftCall::Vote(_)));
            connection
        } => connection,
    };
    assert_eq!(within(first.receive::<()>()).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    let (answered, mut second) = tokio::join!(network.vote(vote_request(), option()), async {
        let mut connection = accept(&listener).await;
        answer_next(&mut connection, 0).await;
        connection
    });
    assert!(answered.unwrap().vote_granted);
    // An answer under another number is an error, and ends the connection.
    let (answered, ()) = tokio::join!(network.vote(vote_request(), option()), answer_next(&mut second, 1));
    assert!(matches!(answered, Err(RPCError::Network(_))));
    assert!(network.connection.is_none());
}

/// As the one heartbeat after the other, where links are slow.
#[tokio::test]
async fn a_call_that_ends_before_the_hello_leaves_the_dialing_to_the_next_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut network = network(&member_at(1, listener.local_addr().unwrap())).await;
    let short = RPCOption::new(Duration::from_millis(20));
    let too_early = within(network.vote(vote_request(), short)).await;
    assert!(matches!(too_early, Err(RPCError::Network(_) | RPCError::Unreachable(_))), "{too_early:?}");
    let (answered, ()) = tokio::join!(within(network.vote(vote_request(), option())), async {
        let mut first = accept(&listener).await;
        answer_next(&mut first, 0).await;
    });
    assert!(answered.unwrap().vote_granted, "the first connection serves");
}

#[tokio::test]
async fn a_heartbeat_whose_hello_took_long_leaves_the_connection_to_the_next_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut network = network(&member_at(1, listener.local_addr().unwrap())).await;
    let beat = || RPCOption::new(Duration::from_millis(100));
    let (too_late, mut first) = tokio::join!(network.append_entries(append_of(&[]), beat()), async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        accept(&listener).await
    });
    assert!(matches!(too_late, Err(RPCError::Network(_))), "{too_late:?}");
    let (answered, ()) = tokio::join!(within(network.append_entries(append_of(&[]), option())), async {
        let (number, _): (u64, RaftCall) = within(first.receive()).await.unwrap();
        let answer: Result<_, String> = Ok(RaftAnswer::Append(AppendEntriesResponse::Success));
        first.send(&(number, answer)).await.unwrap();
    });
    assert!(answered.unwrap().is_success());
}

#[tokio::test]
async fn a_call_ends_by_its_time_and_a_cancel_ends_a_snapshot() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut network = network(&member_at(1, listener.local_addr().unwrap())).await;
    let short = RPCOption::new(Duration::from_millis(100));
    let (answered, _open) = tokio::join!(within(network.vote(vote_request(), short)), accept(&listener));
    assert!(matches!(answered, Err(RPCError::Network(_))));
    let cancel = std::future::ready(ReplicationClosed::new("over"));
    let cancelled = within(network.full_snapshot(vote(), snapshot(), cancel, option())).await;
    assert!(matches!(cancelled, Err(StreamingError::Closed(_))));
}

#[tokio::test]
async fn entries_too_large_for_one_append_go_in_several() {
    let raft = FakeRaft::default();
    let node = serve_raft(FakeNode::new(1, Some(HOME)), raft.clone()).await;
    let mut network = network(&node.member).await;
    let half = APPEND_BYTES_MAX / 2;
    let input = futures::stream::iter([append_of(&[half, half / 2, half, 1])]);
    let answers: Vec<_> = network.stream_append(input, option()).await.unwrap().collect().await;
    assert!(matches!(&answers[..], [Ok(Ok(Some(last)))] if *last == log_id(2)), "{answers:?}");
    assert_eq!(*lock(&raft.appended), [Some(log_id(2))]);
}

#[test]
fn one_entry_is_always_sent_and_what_fits_is_not_cut() {
    let cut = |sizes: &[usize]| {
        let mut entries = append_of(sizes).entries;
        (cut_to_size(&mut entries), entries.len())
    };
    assert_eq!(cut(&[]), (None, 0));
    assert_eq!(cut(&[1, 2, 3]), (None, 3));
    assert_eq!(cut(&[APPEND_BYTES_MAX + 1]), (None, 1));
    assert_eq!(cut(&[APPEND_BYTES_MAX + 1, 1]), (Some(log_id(1)), 1));
}

#[test]
fn an_append_has_these_bytes() {
    let mut bytes = Vec::new();
    append_frame(&mut bytes, &(8_u64, RaftCall::Append(append_of(&[2])))).unwrap();
    let expected = [
        0, 0, 0, 16, 1, /* number */ 8, /* append */ 0, /* vote */ 3, 1, 2, 0, /* prev */ 0,
        /* entries */ 1, /* log id */ 3, 1, /* normal */ 1, /* batch */ 2, 5, 5,
        /* commit */ 0,
    ];
    assert_eq!(bytes, expected);
}

fn later_start(node_id: NodeId) -> NodeCard {
    NodeCard { starts: 2, process: 99, ..card(node_id) }
}

#[tokio::test]
async fn a_later_start_cuts_off_the_process_before_it() {
    let node = serve_raft(FakeNode::new(1, Some(HOME)), FakeRaft::default()).await;
    let dial = async |card: NodeCard| {
        let dialer = Dialer::new(card, || Some(HOME), BTreeMap::new(), |_, _| (), Duration::ZERO);
        dialer.dial(1, &node.member, Purpose::Raft, TTL).await.unwrap()
    };
    let mut first = dial(card(2)).await;
    let _second = dial(later_start(2)).await;
    assert_eq!(within(first.receive::<()>()).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn what_an_overtaken_process_answers_does_not_count() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = member_at(1, listener.local_addr().unwrap());
    let dialer = dialer(2, Some(HOME));
    let mut network = PeerNetworkFactory::new(dialer.clone()).new_client(1, &member).await;
    let (answered, _open) = tokio::join!(within(network.vote(vote_request(), option())), async {
        let mut connection = accept(&listener).await;
        let (number, call): (u64, RaftCall) = connection.receive().await.unwrap();
        assert!(matches!(call, RaftCall::Vote(_)));
        dialer.seen_starts().accept(later_start(1)).unwrap();
        let granted: Result<_, String> = Ok(RaftAnswer::Vote(VoteResponse::new(vote(), None, true)));
        connection.send(&(number, granted)).await.unwrap();
        connection
    });
    assert!(matches!(&answered, Err(RPCError::Network(_))), "{answered:?}");
    assert!(network.connection.is_none());
}

#[tokio::test]
async fn what_was_acknowledged_is_remembered_against_a_later_start() {
    let node = serve_raft(FakeNode::new(1, Some(HOME)), FakeRaft::default()).await;
    let dialer = dialer(2, Some(HOME));
    let mut network = PeerNetworkFactory::new(dialer.clone()).new_client(1, &node.member).await;
    let judge = |opened| dialer.seen_starts().judge(NodeCard { opened, ..later_start(1) }, None).is_ok();
    let empty = Position::default();
    network.pre_vote(vote_request(), option()).await.unwrap();
    assert!(judge(empty), "a pre-vote promises nothing");
    network.vote(vote_request(), option()).await.unwrap();
    assert!(!judge(empty) && judge(Position::new(Some(&vote()), None)));
    network.append_entries(append_of(&[10, 20]), option()).await.unwrap();
    assert!(!judge(Position::new(Some(&vote()), Some(&log_id(1)))));
    assert!(judge(Position::new(Some(&vote()), Some(&log_id(2)))));
}

#[tokio::test]
async fn each_call_goes_where_the_membership_in_force_says() {
    let (old, new) = (FakeRaft::default(), FakeRaft::default());
    let before = serve_raft(FakeNode::new(1, Some(HOME)), old.clone()).await;
    let after = serve_raft(FakeNode::new(1, Some(HOME)), new.clone()).await;
    let mut factory = PeerNetworkFactory::new(dialer(2, Some(HOME)));
    let mut network = factory.new_client(1, &before.member).await;
    network.vote(vote_request(), option()).await.unwrap();
    let moved = after.member.clone();
    factory.look_members_up(move |node_id| (node_id == 1).then(|| moved.clone()));
    network.pre_vote(vote_request(), option()).await.unwrap();
    network.vote(vote_request(), option()).await.unwrap();
    assert_eq!((&lock(&old.votes_asked)[..], &lock(&new.votes_asked)[..]), (&["vote"][..], &["pre-vote", "vote"][..]));
}

#[tokio::test]
async fn whom_the_membership_does_not_name_is_dialed_where_openraft_says() {
    let node = serve_raft(FakeNode::new(1, Some(HOME)), FakeRaft::default()).await;
    let mut factory = PeerNetworkFactory::new(dialer(2, Some(HOME)));
    factory.look_members_up(|_| None);
    assert!(factory.new_client(1, &node.member).await.vote(vote_request(), option()).await.unwrap().vote_granted);
}

#[tokio::test]
async fn a_route_goes_before_the_membership_in_force() {
    let node = serve_raft(FakeNode::new(1, Some(HOME)), FakeRaft::default()).await;
    let routes = BTreeMap::from([(1, node.address())]);
    let mut factory = PeerNetworkFactory::new(Dialer::new(card(2), || Some(HOME), routes, |_, _| (), Duration::ZERO));
    let nobody = Member { peer: "127.0.0.1:1".to_owned(), ..node.member.clone() };
    let elsewhere = nobody.clone();
    factory.look_members_up(move |_| Some(elsewhere.clone()));
    assert!(factory.new_client(1, &nobody).await.vote(vote_request(), option()).await.unwrap().vote_granted);
}
