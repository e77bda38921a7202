//! Changes of the membership over HTTP: what is asked of the node, and what is said of its answers.

use lockstead_core::ClusterId;
use lockstead_raft::{
    AddressKind, MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembershipId, ToGo,
};

use crate::fake_node::CLUSTER;
use crate::wire::{Answer, Server};

const NOW: MembershipId = MembershipId { term: 3, index: 17 };

fn reply() -> MemberReply {
    let to_go = Some(ToGo { entries: 5, bytes: 600 });
    MemberReply { membership: NOW, changed: true, leader: 2, to_go, warning: Some("even".to_owned()) }
}

/// A server whose node answers every change so.
async fn server(answer: Result<MemberReply, MemberError>) -> Server {
    let server = Server::start(vec![]).await;
    server.node.known.lock().unwrap().members = answer;
    server
}

async fn ask(server: &Server, head: &str, body: &str) -> Answer {
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let mut client = server.connect().await;
    client.send(&format!("{head}\r\nhost: h\r\n{kind}content-length: {length}\r\n\r\n{body}")).await;
    client.answer().await
}

fn asked(server: &Server) -> Vec<MemberRequest> {
    server.node.known.lock().unwrap().members_asked.clone()
}

async fn check_asked(head: &str, body: &str, change: MemberChange, wait_ms: u64) {
    let server = server(Ok(reply())).await;
    let answer = ask(&server, head, body).await;
    assert_eq!(answer.status, 200, "{head}: {answer:?}");
    assert_eq!(answer.header("etag"), Some("\"3-17\""));
    let shown = r#"{"membership":"3-17","changed":true,"leader":2,"to_go":{"entries":5,"bytes":600},"warning":"even"}"#;
    assert_eq!(answer.body, shown);
    let expected = MemberRequest { change, if_match: None, wait_ms, force: None };
    assert_eq!(asked(&server), [expected]);
}

#[tokio::test]
async fn each_call_asks_for_its_change() {
    let (peer, api) = ("h:1".to_owned(), "h:2".to_owned());
    let add = MemberChange::Add { id: 4, peer: peer.clone(), api: api.clone() };
    let body = r#"{"id":4,"peer":"h:1","api":"h:2","wait_ms":7}"#;
    check_asked("POST /v1/admin/members HTTP/1.1", body, add, 7).await;
    let moved = MemberChange::Move { id: 4, peer, api };
    check_asked("PUT /v1/admin/members/4 HTTP/1.1", r#"{"peer":"h:1","api":"h:2"}"#, moved, 0).await;
    check_asked("DELETE /v1/admin/members/4 HTTP/1.1", "", MemberChange::Remove { id: 4 }, 0).await;
    check_asked("POST /v1/admin/members/4/promote HTTP/1.1", r#"{"wait_ms":9}"#, MemberChange::Promote { id: 4 }, 9)
        .await;
    check_asked("POST /v1/admin/members/4/demote HTTP/1.1", "", MemberChange::Demote { id: 4 }, 0).await;
    check_asked("POST /v1/admin/leader HTTP/1.1", r#"{"to":4}"#, MemberChange::Lead { to: Some(4) }, 0).await;
    check_asked("POST /v1/admin/leader HTTP/1.1", "", MemberChange::Lead { to: None }, 0).await;
}

#[tokio::test]
async fn conditions_travel_to_the_node() {
    let server = server(Ok(reply())).await;
    let body = format!(r#"{{"force":"{CLUSTER}"}}"#);
    ask(&server, "DELETE /v1/admin/members/4 HTTP/1.1\r\nif-match: \"2-9\"", &body).await;
    let if_match = Some(MembershipId { term: 2, index: 9 });
    let force: Option<ClusterId> = Some(CLUSTER);
    let expected = MemberRequest { change: MemberChange::Remove { id: 4 }, if_match, wait_ms: 0, force };
    assert_eq!(asked(&server), [expected]);
}

#[tokio::test]
async fn each_refusal_has_its_code_and_says_what_helps() {
    let refusals = [
        (MemberRefusal::WouldLoseQuorum("w".into()), 409, "would_lose_quorum", ""),
        (
            MemberRefusal::NotCaughtUp { text: "t".into(), to_go: Some(ToGo { entries: 5, bytes: 600 }) },
            409,
            "not_caught_up",
            r#""to_go":{"entries":5,"bytes":600}"#,
        ),
        (MemberRefusal::ChangeInProgress, 409, "change_in_progress", r#""retry_after_ms":"#),
        (MemberRefusal::NodeIdReused("r".into()), 409, "node_id_reused", ""),
        (MemberRefusal::AddressInUse("a".into()), 409, "address_in_use", ""),
        (MemberRefusal::NodeUnreachable("u".into()), 409, "node_unreachable", ""),
        (MemberRefusal::MembershipChanged { now: NOW }, 412, "membership_changed", r#""membership":"3-17""#),
        (MemberRefusal::UnknownNode(4), 404, "unknown_node", ""),
        (MemberRefusal::WrongCluster(CLUSTER), 409, "wrong_cluster", ""),
        (
            MemberRefusal::AddressDiffers { id: 4, kind: AddressKind::Api, advertised: "h:2".into() },
            400,
            "invalid_field",
            r#""message":"api must be h:2, which node 4 advertises","field":"api","allowed":"h:2""#,
        ),
    ];
    for (refusal, status, code, particular) in refusals {
        let server = server(Err(MemberError::Refused(refusal))).await;
        let answer = ask(&server, "DELETE /v1/admin/members/4 HTTP/1.1", "").await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code));
        assert!(answer.body.contains(particular), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_cluster_is_named_in_digits_of_either_case() {
    let id = CLUSTER.to_string();
    for id in [id.clone(), id.to_uppercase()] {
        let server = server(Ok(reply())).await;
        let head = format!("POST /v1/admin/members/4/demote HTTP/1.1\r\nlockstead-cluster: {id}");
        let answer = ask(&server, &head, &format!(r#"{{"force":"{id}"}}"#)).await;
        assert_eq!(answer.status, 200, "{id}: {answer:?}");
        assert_eq!(asked(&server)[0].force, Some(CLUSTER));
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused_before_the_node_is_asked() {
    for (head, body, status) in [
        ("DELETE /v1/admin/members/four HTTP/1.1", "", 400),
        ("DELETE /v1/admin/members/4?force=1 HTTP/1.1", "", 400),
        ("DELETE /v1/admin/members/4 HTTP/1.1\r\nif-match: 3-17", "", 400),
        ("DELETE /v1/admin/members/4 HTTP/1.1\r\nif-match: \"1-1\"\r\nif-match: \"1-2\"", "", 400),
        ("POST /v1/admin/members HTTP/1.1", r#"{"id":4}"#, 400),
        ("POST /v1/admin/members/4 HTTP/1.1", "", 405),
        ("POST /v1/admin/members/4/prune HTTP/1.1", "", 404),
        ("POST /v1/admin/leader HTTP/1.1\r\nlockstead-cluster: 0123456789abcdef0123456789abcdef", "", 409),
    ] {
        let server = server(Ok(reply())).await;
        let answer = ask(&server, head, body).await;
        assert_eq!(answer.status, status, "{head}: {answer:?}");
        assert_eq!(asked(&server), []);
    }
}
