//! The bytes of each frame are what a node of another version gets. A change of them is a new version of frames, or of
//! the protocol.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use lockstead_core::{
    Acquire, ClusterId, Fence, Get, GiveBack, Grant, HeldBy, HolderView, Incarnation, LockKey, LockName, LockView,
    Metadata, Mode, Op, Outcome, OwnerName, Proof, Release, Renew, Renewal, RequestId, Token, Ttl, WaiterView,
    WallTime,
};
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ForwardAnswer;
use super::frame::{append_frame, decode};
use super::hello::{Advertised, Hello, HelloAnswer, NodeCard, Purpose, RefusedWhy, Welcome};
use super::join::{JoinAnswer, JoinCall, JoinStep};
use super::members::MembersCall;
use super::network::{RaftAnswer, RaftCall, SnapshotCall};
use super::requests::{LinkAnswer, LinkCall};
use super::restate::{RestateAnswer, RestateCall, Restated};
use super::starts::Position;
use crate::members::{
    AddressKind, MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembersAnswer, MembershipId,
    NodeStatus, ToGo,
};
use crate::store::first_snapshot;
use crate::types::{BatchBytes, Entry, LogId, Member, Vote};

/// Of [`vote`]: openraft writes the node as an option.
const VOTE: &str = "03 0102 01";
/// Of [`log_id`].
const LOG_ID: &str = "03 fb0201";
const CARD: &str = "02 09 05 fb2c01 04 01 03 fb0201";
/// Peer and api address, incarnation, version, starts, process.
const MEMBER: &str = "03703a32 03613a31 09 05312e322e33 05 fb2c01";
/// Namespace, zero, name.
const LOCK: &str = "09 64656661756c74 00 61";
const TOKEN: &str = "abababababababababababababababab";
const TEXT: &str = "02 6e6f";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The message in its frame: four bytes of length, the version, and `body`. Read back, it is the same.
fn check<T: Serialize + DeserializeOwned>(message: &T, body: &str) {
    let mut frame = Vec::new();
    append_frame(&mut frame, message).unwrap();
    let body = body.replace(' ', "");
    assert_eq!(hex(&frame), format!("{:08x}01{body}", body.len() / 2 + 1));
    let read: T = decode(&frame[4..]).unwrap();
    let mut again = Vec::new();
    append_frame(&mut again, &read).unwrap();
    assert_eq!(again, frame);
}

/// As of [`check`], and what is read back is equal.
fn check_equal<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T, body: &str) {
    check(message, body);
    let mut frame = Vec::new();
    append_frame(&mut frame, message).unwrap();
    assert_eq!(decode::<T>(&frame[4..]).unwrap(), *message);
}

fn vote() -> Vote {
    Vote::new_committed(3, 2)
}

fn log_id() -> LogId {
    LogId::new_term_index(3, 258)
}

fn card() -> NodeCard {
    let opened = Position::new(Some(&Vote::new(4, 1)), Some(&log_id()));
    NodeCard { node_id: 2, incarnation: Incarnation(9), starts: 5, process: 300, opened }
}

fn member() -> Member {
    let (peer, api, version) = ("p:2".to_owned(), "a:1".to_owned(), "1.2.3".to_owned());
    Member { peer, api, incarnation: Incarnation(9), version, starts: 5, process: 300 }
}

fn lock() -> LockKey {
    LockKey::in_default(&LockName::parse("a").unwrap())
}

fn no() -> String {
    "no".to_owned()
}

#[test]
fn the_hello_lies_in_these_bytes() {
    let hello = |purpose| Hello {
        protocol: 1,
        cluster: Some(ClusterId(7)),
        from: card(),
        to: Some((1, Incarnation(8))),
        purpose,
        version: "1.2.3".to_owned(),
    };
    let purposes =
        [Purpose::Raft, Purpose::Requests, Purpose::Join, Purpose::Probe, Purpose::Members, Purpose::Restate];
    for (number, purpose) in purposes.into_iter().enumerate() {
        check_equal(&hello(purpose), &format!("01 0107 {CARD} 010108 0{number} 05312e322e33"));
    }
    let first = Hello { cluster: None, to: None, ..hello(Purpose::Join) };
    check_equal(&first, &format!("01 00 {CARD} 00 02 05312e322e33"));
}

#[test]
fn the_answer_to_a_hello_lies_in_these_bytes() {
    let welcome = |known| Welcome { cluster: Some(ClusterId(7)), card: card(), known, version: "1.2.3".to_owned() };
    check_equal(&HelloAnswer::Welcome(welcome(Some(member()))), &format!("00 0107 {CARD} 01 {MEMBER} 05312e322e33"));
    check_equal(&Advertised { peer: "p:2".to_owned(), api: "a:1".to_owned() }, "03703a32 03613a31");
    check_equal(&HelloAnswer::Welcome(welcome(None)), &format!("00 0107 {CARD} 00 05312e322e33"));
    let reasons = [
        RefusedWhy::Protocol,
        RefusedWhy::WrongNode,
        RefusedWhy::WrongCluster,
        RefusedWhy::WrongIncarnation,
        RefusedWhy::OldStart,
        RefusedWhy::SecondProcess,
        RefusedWhy::Removed,
        RefusedWhy::Itself,
        RefusedWhy::Storage,
    ];
    for (number, why) in reasons.into_iter().enumerate() {
        check_equal(&HelloAnswer::Refused { why, text: no() }, &format!("01 0{number} {TEXT}"));
    }
}

#[test]
fn calls_of_raft_lie_in_these_bytes() {
    let batch = Entry { log_id: log_id(), payload: EntryPayload::Normal(BatchBytes(Arc::from(&b"facts"[..]))) };
    let blank = Entry { log_id: log_id(), payload: EntryPayload::Blank };
    let (prev_log_id, leader_commit) = (Some(log_id()), Some(log_id()));
    let append = AppendEntriesRequest { vote: vote(), prev_log_id, entries: vec![blank, batch], leader_commit };
    let entries = format!("02 {LOG_ID} 00 {LOG_ID} 01 05 6661637473");
    check(&(7_u64, RaftCall::Append(append)), &format!("07 00 {VOTE} 01 {LOG_ID} {entries} 01 {LOG_ID}"));
    let asked = || VoteRequest::new(Vote::new(3, 2), Some(log_id()));
    check(&(7_u64, RaftCall::Vote(asked())), &format!("07 01 03 0102 00 01 {LOG_ID} 00"));
    check(&(7_u64, RaftCall::PreVote(asked())), &format!("07 02 03 0102 00 01 {LOG_ID} 00"));
    let snapshot = first_snapshot(lockstead_core::Residue::default(), 2, member());
    let call = SnapshotCall { vote: vote(), meta: snapshot.meta, data: b"data".to_vec() };
    // The label and the membership's log id, its one set of one voter, its one node; a text that openraft leaves empty.
    let meta = format!("01 00 00 01 00 00 01 01 02 01 02 {MEMBER} 00");
    check(&(7_u64, RaftCall::Snapshot(call)), &format!("07 03 {VOTE} {meta} 04 64617461"));
    let transfer = TransferLeaderRequest::new(vote(), 5, Some(log_id()));
    check(&(7_u64, RaftCall::Transfer(transfer)), &format!("07 04 {VOTE} 05 01 {LOG_ID}"));
}

#[test]
fn answers_of_raft_lie_in_these_bytes() {
    let check = |answer: RaftAnswer, body: &str| {
        check_equal(&(7_u64, Ok::<_, String>(answer)), &format!("07 00 {body}"));
    };
    check(RaftAnswer::Append(AppendEntriesResponse::Success), "00 00");
    check(RaftAnswer::Append(AppendEntriesResponse::PartialSuccess(Some(log_id()))), &format!("00 01 01 {LOG_ID}"));
    check(RaftAnswer::Append(AppendEntriesResponse::Conflict), "00 02");
    check(RaftAnswer::Append(AppendEntriesResponse::HigherVote(vote())), &format!("00 03 {VOTE}"));
    let voted = || VoteResponse::new(vote(), Some(log_id()), true);
    check(RaftAnswer::Vote(voted()), &format!("01 {VOTE} 01 01 {LOG_ID}"));
    check(RaftAnswer::PreVote(voted()), &format!("02 {VOTE} 01 01 {LOG_ID}"));
    check(RaftAnswer::Snapshot(SnapshotResponse::new(vote())), &format!("03 {VOTE}"));
    check_equal(&(7_u64, Err::<RaftAnswer, _>(no())), &format!("07 01 {TEXT}"));
}

#[test]
fn calls_of_a_request_link_lie_in_these_bytes() {
    let check_op = |op: Op, body: &str| {
        let call = LinkCall::Submit { call: 6, op: Cow::Owned(op), time_left_ms: 300 };
        check_equal(&call, &format!("00 06 {body} fb2c01"));
    };
    let acquire = Acquire {
        lock: lock(),
        ttl: Ttl::DEFAULT,
        wait_ms: 8,
        queued_ms: 9,
        owner: Some(OwnerName::parse("me").unwrap()),
        request_id: Some(RequestId::parse("0123456789abcdef").unwrap()),
        metadata: Metadata::parse(vec![("k".to_owned(), "v".to_owned())]).unwrap(),
    };
    let request_id = "01 10 30313233343536373839616263646566";
    check_op(Op::Acquire(acquire), &format!("00 {LOCK} fb3075 08 09 01026d65 {request_id} 01 016b 0176"));
    let token = Some(Token([0xab; 16]));
    check_op(Op::Release(Release { lock: lock(), token }), &format!("01 {LOCK} 01 {TOKEN}"));
    let renew = |proof| Op::Renew(Renew { lock: lock(), proof, ttl: Ttl::DEFAULT });
    check_op(renew(Proof::Token(token)), &format!("02 {LOCK} 00 01 {TOKEN} fb3075"));
    check_op(renew(Proof::Owner(OwnerName::parse("me").unwrap())), &format!("02 {LOCK} 01 026d65 fb3075"));
    check_op(Op::Get(Get { lock: lock() }), &format!("03 {LOCK}"));
    let give_back = GiveBack { lock: lock(), fence: Fence(300), term: 3 };
    check_op(Op::GiveBack(give_back.clone()), &format!("04 {LOCK} fb2c01 03"));
    check_equal(&LinkCall::Cancel { call: 6 }, "01 06");
    check_equal(&LinkCall::GiveBack(give_back), &format!("02 {LOCK} fb2c01 03"));
    check_equal(&LinkCall::Ping, "03");
}

#[test]
fn answers_of_a_request_link_lie_in_these_bytes() {
    let check = |answer: ForwardAnswer, body: &str| {
        check_equal(&LinkAnswer::Answered { call: 6, answer }, &format!("00 06 {body}"));
    };
    let check_outcome = |outcome: Outcome, body: &str| {
        check(ForwardAnswer::Reply { outcome, waited_ms: 5 }, &format!("00 {body} 05"));
    };
    let grant = Grant {
        fence: Fence(300),
        token: Token([0xab; 16]),
        ttl: Ttl::DEFAULT,
        left_ms: 7,
        renewed: false,
        term: 3,
        fresh: true,
    };
    check_outcome(Outcome::Granted(grant), &format!("00 fb2c01 {TOKEN} fb3075 07 00 03 01"));
    let holder = HolderView {
        fence: Fence(300),
        owner: Some(OwnerName::parse("me").unwrap()),
        mode: Mode::Shared,
        acquired_at: WallTime(300),
        left_ms: 7,
        metadata: Metadata::default(),
    };
    let seen = "01 fb2c01 01026d65 01 fb2c01 07 00";
    let held = HeldBy { holders: vec![holder.clone()], queue_len: 4, hold_off_ms: 6 };
    check_outcome(Outcome::Held(held), &format!("01 {seen} 04 06"));
    check_outcome(Outcome::LimitExceeded { limit: 9, current: 8 }, "02 09 08");
    check_outcome(Outcome::RequestIdReused, "03");
    check_outcome(Outcome::TooLarge, "04");
    check_outcome(Outcome::Released, "05");
    check_outcome(
        Outcome::Renewed(Renewal { fence: Fence(300), ttl: Ttl::DEFAULT, left_ms: 7 }),
        "06 fb2c01 fb3075 07",
    );
    check_outcome(Outcome::NotHolder, "07");
    let view = LockView { holders: vec![holder], waiters: vec![WaiterView { owner: None, waiting_ms: 2 }] };
    check_outcome(Outcome::Got(view), &format!("08 {seen} 01 00 02"));
    check_outcome(Outcome::NotHeld, "09");
    check_outcome(Outcome::GaveBack, "0a");
    check(ForwardAnswer::NotLeader { leader: Some(2) }, "01 01 02");
    check(ForwardAnswer::NoLeader, "02");
    check(ForwardAnswer::OutcomeUnknown, "03");
    check(ForwardAnswer::CatchingUp, "04");
    check_equal(&LinkAnswer::Withdrawn { call: 6 }, "01 06");
    check_equal(&LinkAnswer::Pong, "02");
}

#[test]
fn joining_lies_in_these_bytes() {
    let call = |step| JoinCall { node_id: 4, incarnation: Incarnation(9), member: member(), step };
    check_equal(&call(JoinStep::Add), &format!("04 09 {MEMBER} 00"));
    check_equal(&call(JoinStep::Promote), &format!("04 09 {MEMBER} 01"));
    check_equal(&JoinAnswer::Accepted { cluster: ClusterId(7) }, "00 07");
    check_equal(&JoinAnswer::Promoted, "01");
    check_equal(&JoinAnswer::NotCaughtUp, "02");
    check_equal(&JoinAnswer::NotLeader { leader_peer: Some("p:2".to_owned()) }, "03 01 03703a32");
    check_equal(&JoinAnswer::Removed { text: no() }, &format!("04 {TEXT}"));
    check_equal(&JoinAnswer::Refused { text: no() }, &format!("05 {TEXT}"));
    check_equal(&JoinAnswer::TryAgain { text: no() }, &format!("06 {TEXT}"));
}

#[test]
fn calls_about_the_membership_lie_in_these_bytes() {
    check_equal(&MembersCall::Status, "00");
    check_equal(&MembersCall::Announce { node_id: 2, member: member() }, &format!("01 02 {MEMBER}"));
    let if_match = Some(MembershipId { term: 3, index: 258 });
    let change = |change| MembersCall::Change {
        request: MemberRequest { change, if_match, wait_ms: 6, force: Some(ClusterId(7)) },
        time_left_ms: 8,
    };
    let (peer, api) = ("p:2".to_owned(), "a:1".to_owned());
    for (made, body) in [
        (MemberChange::Add { id: 4, peer: peer.clone(), api: api.clone() }, "00 04 03703a32 03613a31"),
        (MemberChange::Move { id: 4, peer, api }, "01 04 03703a32 03613a31"),
        (MemberChange::Remove { id: 4 }, "02 04"),
        (MemberChange::Promote { id: 4 }, "03 04"),
        (MemberChange::Demote { id: 4 }, "04 04"),
        (MemberChange::Lead { to: Some(4) }, "05 01 04"),
    ] {
        check_equal(&change(made), &format!("02 {body} 01 {LOG_ID} 06 0107 08"));
    }
}

#[test]
fn answers_about_the_membership_lie_in_these_bytes() {
    check_equal(&MembersAnswer::Status(NodeStatus { complete: true, votes: false }), "00 01 00");
    check_equal(&MembersAnswer::Announced(JoinAnswer::Promoted), "01 01");
    let (membership, to_go) = (MembershipId { term: 3, index: 258 }, Some(ToGo { entries: 5, bytes: 6 }));
    let reply = MemberReply { membership, changed: true, leader: 2, to_go, warning: Some(no()) };
    check_equal(&MembersAnswer::Changed(Ok(reply)), &format!("02 00 {LOG_ID} 01 02 01 05 06 01 {TEXT}"));
    let misaddressed = |kind| MemberRefusal::AddressDiffers { id: 4, kind, advertised: no() };
    for (refusal, body) in [
        (MemberRefusal::WouldLoseQuorum(no()), format!("00 {TEXT}")),
        (MemberRefusal::NotCaughtUp { text: no(), to_go }, format!("01 {TEXT} 01 05 06")),
        (MemberRefusal::ChangeInProgress, "02".to_owned()),
        (MemberRefusal::NodeIdReused(no()), format!("03 {TEXT}")),
        (MemberRefusal::AddressInUse(no()), format!("04 {TEXT}")),
        (MemberRefusal::NodeUnreachable(no()), format!("05 {TEXT}")),
        (MemberRefusal::MembershipChanged { now: membership }, format!("06 {LOG_ID}")),
        (MemberRefusal::UnknownNode(4), "07 04".to_owned()),
        (MemberRefusal::WrongCluster(ClusterId(7)), "08 07".to_owned()),
        (misaddressed(AddressKind::Peer), format!("09 04 00 {TEXT}")),
        (misaddressed(AddressKind::Api), format!("09 04 01 {TEXT}")),
    ] {
        check_equal(&MembersAnswer::Changed(Err(MemberError::Refused(refusal))), &format!("02 01 00 {body}"));
    }
    check_equal(&MembersAnswer::Changed(Err(MemberError::NoLeader)), "02 01 01");
    check_equal(&MembersAnswer::Changed(Err(MemberError::OutcomeUnknown)), "02 01 02");
    check_equal(&MembersAnswer::NotLeader, "03");
    check_equal(&MembersAnswer::HandedOver, "04");
}

#[test]
fn restating_lies_in_these_bytes() {
    check_equal(&RestateCall { time_left_ms: 300 }, "fb2c01");
    check_equal(&RestateAnswer::Restated(Restated { upto: 258, applied: 5 }), "00 fb0201 05");
    check_equal(&RestateAnswer::NotInTime, "01");
    check_equal(&RestateAnswer::NotLeader, "02");
}
