//! Health, metrics, and the view of the cluster.

use lockstead_core::{Incarnation, NodeId};
use lockstead_raft::{MemberView, NotReady, Role, SnapshotError, SnapshotTaken, SnapshotView};

use crate::fake_node::{CLUSTER, answer, empty_view, grant};
use crate::wire::Server;

#[tokio::test]
async fn livez_is_live_whatever_the_node_says() {
    let server = Server::start(vec![]).await;
    server.node.known.lock().unwrap().readiness = Err(NotReady::NotJoined);
    let answer = server.get("/livez").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"status":"live"}"#));
}

#[tokio::test]
async fn readyz_gives_the_reason() {
    let server = Server::start(vec![]).await;
    assert_eq!(server.get("/readyz?verbose").await.body, r#"{"status":"ready"}"#);
    for (not_ready, reason) in [
        (NotReady::NotJoined, "not_joined"),
        (NotReady::NotVoter, "not_voter"),
        (NotReady::Doubted("node 1 says: an older copy".to_owned()), "doubted"),
        (NotReady::CatchingUp, "catching_up"),
        (NotReady::NoLeader, "no_leader"),
        (NotReady::Unproven, "unproven"),
    ] {
        let message = not_ready.to_string();
        server.node.known.lock().unwrap().readiness = Err(not_ready);
        let answer = server.get("/readyz").await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.body, format!(r#"{{"status":"not_ready","reason":"{reason}","message":"{message}"}}"#));
    }
}

#[tokio::test]
async fn a_backup_comes_as_it_is_to_lie_in_a_file_or_not_at_all() {
    let server = Server::start(vec![]).await;
    let refused = server.get("/v1/admin/backup").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("catching_up"), "{}", refused.body);
    server.node.known.lock().unwrap().backup = Ok(b"as it is".to_vec());
    let given = server.get("/v1/admin/backup").await;
    assert_eq!((given.status, given.header("content-type")), (200, Some("application/octet-stream")));
    assert_eq!(given.body, "as it is");
    assert_eq!(server.get("/v1/admin/backup?of=1").await.status, 400);
}

#[tokio::test]
async fn an_empty_node_shows_its_view() {
    let server = Server::start(vec![]).await;
    let answer = server.get("/v1/admin/cluster").await;
    let expected = concat!(
        r#"{"cluster_id":null,"node_id":3,"peer":"10.0.0.3:7900","bootstrapping":true,"leader":null,"term":0,"#,
        r#""last_log":0,"committed":0,"applied":0,"lease_ms":0,"failures_tolerated":0,"snapshot":null,"#,
        r#""tail":{"entries":0,"bytes":0},"live_records":0,"hold_off_ms":0,"disk_bytes":0,"membership":null,"members":[]}"#
    );
    assert_eq!((answer.status, answer.body.as_str()), (200, expected));
}

#[tokio::test]
async fn a_member_shows_what_is_known_of_the_others() {
    let server = Server::start(vec![]).await;
    let mut view = empty_view();
    view.cluster_id = Some(CLUSTER);
    view.snapshot = Some(SnapshotView { index: 5, built_at: 6, bytes: 7 });
    view.members = vec![MemberView { matched: Some(9), ..member(2, Role::Leader, Some(true), Some(0)) }];
    server.node.known.lock().unwrap().view = view;
    let body = server.get("/v1/admin/cluster").await.body;
    let member = concat!(
        r#""members":[{"id":2,"role":"leader","api":"a:1","peer":"p:1","incarnation":"000000000000000f","#,
        r#""version":"0.1.0","starts":4,"reachable":true,"last_contact_ms":null,"matched":9,"lag":0}]"#
    );
    for part in [
        member,
        r#""snapshot":{"index":5,"built_at":6,"bytes":7}"#,
        r#""cluster_id":"00000000000000000000000000abcdef""#,
    ] {
        assert!(body.contains(part), "{part} in {body}");
    }
}

fn member(id: NodeId, role: Role, reachable: Option<bool>, lag: Option<u64>) -> MemberView {
    MemberView {
        id,
        role,
        api: "a:1".to_owned(),
        peer: "p:1".to_owned(),
        incarnation: Incarnation(0xf),
        version: "0.1.0".to_owned(),
        starts: 4,
        reachable,
        last_contact_ms: None,
        matched: None,
        lag,
    }
}

/// The values of the gauges that are asked of the node at each scrape.
async fn gauges(server: &Server) -> Vec<String> {
    const COUNTED_ELSEWHERE: [&str; 2] = ["lockstead_http_", "lockstead_fake_"];
    let page = server.get("/metrics").await.body;
    let shown = page.lines().filter(|line| !COUNTED_ELSEWHERE.iter().any(|other| line.starts_with(other)));
    shown.filter_map(|line| Some(line.strip_prefix("lockstead_")?.to_owned())).collect()
}

#[tokio::test]
async fn gauges_show_what_a_leader_knows_and_a_member_that_goes_takes_its_series_along() {
    let server = Server::start(vec![]).await;
    let mut view = empty_view();
    (view.leader, view.leads, view.term, view.hold_off_ms) = (Some(3), true, 5, 1_500);
    (view.last_log, view.committed, view.applied, view.failures_tolerated) = (90, 80, 70, 1);
    view.members = vec![
        member(3, Role::Leader, Some(true), Some(0)),
        member(4, Role::Follower, Some(false), Some(20)),
        member(5, Role::Learner, Some(true), None),
    ];
    server.node.known.lock().unwrap().view = view;
    let expected = [
        "ready 1",
        "leading 1",
        "term 5",
        "failures_tolerated 1",
        "voters 2",
        "last_log_index 90",
        "committed_index 80",
        "applied_index 70",
        "hold_off_seconds 1.5",
        r#"member_reachable{member="3"} 1"#,
        r#"member_reachable{member="4"} 0"#,
        r#"member_reachable{member="5"} 1"#,
        r#"member_lag_entries{member="3"} 0"#,
        r#"member_lag_entries{member="4"} 20"#,
    ];
    assert_eq!(gauges(&server).await, expected);

    server.node.known.lock().unwrap().view.members.remove(1);
    let left: Vec<_> = expected.into_iter().filter(|line| !line.contains("\"4\"")).collect();
    let left: Vec<_> = left.into_iter().map(|line| if line == "voters 2" { "voters 1" } else { line }).collect();
    assert_eq!(gauges(&server).await, left);
}

#[tokio::test]
async fn a_node_that_does_not_lead_shows_nothing_of_the_members_and_why_it_is_not_ready() {
    let server = Server::start(vec![]).await;
    {
        let mut known = server.node.known.lock().unwrap();
        known.view.leader = Some(4);
        known.view.members = vec![member(3, Role::Follower, Some(true), None), member(4, Role::Leader, None, None)];
        known.readiness = Err(NotReady::CatchingUp);
    }
    let shown = gauges(&server).await;
    assert_eq!(shown[..4], ["ready 0", r#"not_ready{reason="catching_up"} 1"#, "leading 0", "term 0"]);
    assert!(!shown.iter().any(|line| line.contains("member")), "{shown:?}");
}

#[tokio::test]
async fn a_snapshot_is_taken_on_request_and_its_errors_say_what_to_do() {
    let server = Server::start(vec![]).await;
    let taken = SnapshotTaken { index: 5, built_at: 9, purged_to: 4, bytes: 7 };
    for (result, status, expected) in [
        (Ok(taken), 200, r#"{"index":5,"built_at":9,"purged_to":4,"bytes":7}"#),
        (Err(SnapshotError::NoLeader), 503, r#""code":"no_leader""#),
        (Err(SnapshotError::CatchingUp), 503, r#""code":"catching_up""#),
        (Err(SnapshotError::NotInTime), 503, r#""code":"outcome_unknown""#),
    ] {
        server.node.known.lock().unwrap().snapshot = result;
        for body in ["", "{}"] {
            let answer = server.post("/v1/admin/snapshot", body).await;
            assert_eq!((answer.status, answer.header("retry-after")), (status, (status == 503).then_some("1")));
            assert!(answer.body.contains(expected), "{}", answer.body);
        }
    }
    for (path, body) in [("/v1/admin/snapshot?x=1", ""), ("/v1/admin/snapshot", r#"{"x":1}"#)] {
        let refused = server.post(path, body).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_field"));
    }
}

#[tokio::test]
async fn metrics_count_by_route_and_never_show_what_callers_chose() {
    let server = Server::start(vec![answer(grant(1)), answer(grant(1))]).await;
    for _ in 0..2 {
        let body = r#"{"name":"chosen-name","owner":"chosen-owner"}"#;
        assert_eq!(server.post("/v1/locks/acquire", body).await.status, 200);
    }
    server.get("/chosen-path?x=chosen-query").await;
    let answer = server.get("/metrics").await;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((answer.status, answer.header("content-type")), (200, Some(content_type)));
    for line in [
        r#"lockstead_http_requests_total{route="/v1/locks/acquire",code="200"} 2"#,
        r#"lockstead_http_requests_total{route="unknown",code="404"} 1"#,
        r#"lockstead_http_request_seconds_count{route="/v1/locks/acquire"} 2"#,
        "lockstead_fake_of_the_node 7",
        "# EOF",
    ] {
        assert!(answer.body.lines().any(|shown| shown == line), "{line} in {}", answer.body);
    }
    assert!(answer.body.contains("\nlockstead_http_connections "), "{}", answer.body);
    assert!(!answer.body.contains("chosen") && !answer.body.contains("abab"), "{}", answer.body);
}
