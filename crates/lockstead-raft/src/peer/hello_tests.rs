use super::*;
use crate::peer::fakes::{FakeNode, card};
use crate::peer::frame::append_frame;

const HOME: ClusterId = ClusterId(7);
const AWAY: ClusterId = ClusterId(8);

/// Node 1 of cluster `HOME`, which knows node 2 with directory 2.
fn host() -> FakeNode {
    FakeNode::new(1, Some(HOME)).with_member(1).with_member(2)
}

fn hello(purpose: Purpose) -> Hello {
    let version = "1.2.3".to_owned();
    Hello { protocol: PROTOCOL, cluster: Some(HOME), from: card(2), to: Some((1, Incarnation(1))), purpose, version }
}

async fn answer(host: &FakeNode, seen: &SeenStarts, hello: &Hello) -> Option<RefusedWhy> {
    match answer_hello(host, seen, hello).await {
        (HelloAnswer::Welcome(welcome), acquaintance) => {
            assert_eq!((welcome.cluster, welcome.card), (host.cluster(), host.card()));
            assert_eq!(welcome.known, host.member(hello.from.node_id));
            assert_eq!(acquaintance.is_none(), matches!(hello.purpose, Purpose::Join | Purpose::Probe));
            None
        }
        (HelloAnswer::Refused { why, .. }, acquaintance) => {
            assert!(acquaintance.is_none());
            Some(why)
        }
    }
}

async fn check(host: &FakeNode, hello: &Hello, expected: Option<RefusedWhy>) {
    assert_eq!(answer(host, &SeenStarts::default(), hello).await, expected, "{hello:?}");
}

#[tokio::test]
async fn only_the_right_node_of_the_right_cluster_is_let_in() {
    use Purpose::{Join, Members, Probe, Raft, Requests};
    let host = host();
    for purpose in [Raft, Requests, Join, Probe, Members] {
        let good = hello(purpose);
        let stranger = NodeCard { incarnation: Incarnation(9), ..card(2) };
        let of_members = |why| (!matches!(purpose, Join | Probe)).then_some(why);
        check(&host, &good, None).await;
        check(&host, &Hello { from: card(3), ..good.clone() }, None).await;
        check(&host, &Hello { protocol: 2, ..good.clone() }, Some(RefusedWhy::Protocol)).await;
        check(&host, &Hello { to: Some((3, Incarnation(1))), ..good.clone() }, Some(RefusedWhy::WrongNode)).await;
        check(&host, &Hello { to: Some((1, Incarnation(9))), ..good.clone() }, Some(RefusedWhy::WrongNode)).await;
        check(&host, &Hello { to: None, ..good.clone() }, of_members(RefusedWhy::WrongNode)).await;
        check(&host, &Hello { cluster: Some(AWAY), ..good.clone() }, Some(RefusedWhy::WrongCluster)).await;
        check(&host, &Hello { cluster: None, ..good.clone() }, of_members(RefusedWhy::WrongCluster)).await;
        check(&host, &Hello { from: stranger, ..good.clone() }, Some(RefusedWhy::WrongIncarnation)).await;
        let double = NodeCard { process: 99, ..card(1) };
        check(&host, &Hello { from: double, ..good.clone() }, Some(RefusedWhy::SecondProcess)).await;
        check(&host, &Hello { from: card(1), ..good.clone() }, Some(RefusedWhy::Itself)).await;
    }
}

#[tokio::test]
async fn a_removed_node_is_told_so_whatever_it_wants() {
    for purpose in [Purpose::Raft, Purpose::Requests, Purpose::Join] {
        let host = FakeNode::new(1, Some(HOME)).with_member(1).with_retired(2);
        check(&host, &hello(purpose), Some(RefusedWhy::Removed)).await;
        let of_another_cluster = Hello { cluster: Some(AWAY), ..hello(purpose) };
        check(&host, &of_another_cluster, Some(RefusedWhy::WrongCluster)).await;
    }
}

#[tokio::test]
async fn a_node_without_a_cluster_adopts_that_of_a_raft_dialer_only() {
    let adopted = async |purpose, cluster, expected| {
        let host = FakeNode::new(1, None);
        check(&host, &Hello { cluster, ..hello(purpose) }, expected).await;
        host.cluster()
    };
    assert_eq!(adopted(Purpose::Raft, Some(HOME), None).await, Some(HOME));
    assert_eq!(adopted(Purpose::Raft, None, Some(RefusedWhy::WrongCluster)).await, None);
    assert_eq!(adopted(Purpose::Requests, Some(HOME), Some(RefusedWhy::WrongCluster)).await, None);
    assert_eq!(adopted(Purpose::Join, Some(HOME), None).await, None);
    assert_eq!(adopted(Purpose::Probe, Some(HOME), None).await, None);
    let full = FakeNode::new(1, None).with_full_disk();
    check(&full, &hello(Purpose::Raft), Some(RefusedWhy::Storage)).await;
}

#[tokio::test]
async fn a_refused_dialer_makes_nobody_adopt_its_cluster() {
    let host = FakeNode::new(1, None);
    check(&host, &Hello { to: Some((1, Incarnation(9))), ..hello(Purpose::Raft) }, Some(RefusedWhy::WrongNode)).await;
    assert_eq!(host.cluster(), None);
}

#[tokio::test]
async fn a_later_start_is_let_in_only_once_the_earlier_process_is_silent() {
    let (host, seen) = (host(), SeenStarts::default());
    let arrive = async |starts, process| {
        let from = NodeCard { starts, process, ..card(2) };
        answer(&host, &seen, &Hello { from, ..hello(Purpose::Raft) }).await
    };
    assert_eq!(arrive(5, 1).await, None);
    host.let_answer(2, Some(1));
    assert_eq!(arrive(6, 2).await, Some(RefusedWhy::SecondProcess), "a copy beside the original");
    assert_eq!(arrive(5, 1).await, None, "the original is not harmed");
    host.let_answer(2, None);
    assert_eq!(arrive(6, 2).await, None);
    assert_eq!(arrive(5, 1).await, Some(RefusedWhy::OldStart));
    host.let_answer(2, Some(3));
    assert_eq!(arrive(7, 3).await, None, "the process that answers is the new one itself");
}

#[test]
fn the_hello_has_these_bytes() {
    let mut bytes = Vec::new();
    append_frame(&mut bytes, &hello(Purpose::Requests)).unwrap();
    assert_eq!(bytes[..5], [/* length */ 0, 0, 0, 20, /* version */ 1]);
    let from = [2, 2, 1, 2, /* opened */ 0, 0];
    let to = [1, 1, 1];
    let version = *b"\x051.2.3";
    let expected = [&[/* protocol */ 1, /* cluster */ 1, 7][..], &from, &to, &[/* purpose */ 1], &version].concat();
    assert_eq!(bytes[5..], expected);
}

#[tokio::test]
async fn an_empty_node_hears_that_its_id_was_a_member_with_another_directory() {
    let call = |to, purpose| Hello { to: Some(to), ..hello(purpose) };
    let lost = (1, Incarnation(9));
    for (cluster, call, heard) in [
        (None, call(lost, Purpose::Raft), true),
        (None, call((1, Incarnation(1)), Purpose::Raft), false),
        (None, call((3, Incarnation(9)), Purpose::Raft), false),
        (None, call(lost, Purpose::Probe), false),
        (None, Hello { cluster: None, ..call(lost, Purpose::Raft) }, false),
        (Some(HOME), call(lost, Purpose::Raft), false),
    ] {
        let host = FakeNode::new(1, cluster);
        answer(&host, &SeenStarts::default(), &call).await;
        assert_eq!(host.called_as(), if heard { vec![(HOME, Incarnation(9))] } else { Vec::new() }, "{call:?}");
    }
}
