//! Where a member is reached, and whether it is the node that it says: what is told to the cluster comes true, or is
//! refused before anything is changed.

use std::fs;
use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::api::Api;
use crate::harness::clock::{eventually, now, secs};
use crate::harness::cluster::Cluster;
use crate::harness::http::Answer;
use crate::harness::locker::{insist, take};
use crate::harness::node::Node;
use crate::harness::ports::free_address;

const MEMBERS: &str = "/v1/admin/members";
const IDENTITY_REFUSED: i32 = 13;

/// A member, as the node asked sees it.
fn member(api: &Api, id: u64) -> Option<Value> {
    let view = api.patient_for(secs(1)).cluster().ok()?;
    view.body["members"].as_array()?.iter().find(|member| member["id"] == id).cloned()
}

/// The leader that was there all along reaches the member and has given it everything.
fn must_reach(cluster: &Cluster, (leader, term): (u64, u64), id: u64) {
    let api = cluster.api(leader);
    eventually("the leader reaches the member where it is", secs(10), || {
        let member = member(&api, id)?;
        (member["reachable"] == true && member["lag"] == 0).then_some(())
    });
    let view = api.cluster().unwrap();
    assert_eq!((view.body["leader"].as_u64(), view.number("term")), (Some(leader), term), "no other office was needed");
}

#[test]
fn a_moved_member_is_reached_at_once_by_the_leader_that_was_there_and_counts_for_the_majority() {
    let mut cluster = Cluster::start(3);
    let held = take(&cluster.api(1), "L", secs(60));
    let leader = cluster.leader();
    let office = (leader, cluster.api(leader).cluster().unwrap().number("term"));
    let id = cluster.others(leader)[0];
    for told_first in [false, true] {
        let (api, peer) = (free_address(), free_address());
        let to = json!({"peer": peer.to_string(), "api": api.to_string()});
        if !told_first {
            cluster.node(id).kill();
        }
        for changed in [true, false] {
            let moved = cluster.api(leader).membership("PUT", &format!("{MEMBERS}/{id}"), &to).unwrap().must_be_ok();
            assert_eq!(moved.body["changed"], changed, "{moved:?}");
        }
        if told_first {
            cluster.node(id).signal(Signal::TERM);
            cluster.node(id).wait_for_exit(secs(20));
        }
        cluster.restart_at(id, api, peer);
        must_reach(&cluster, office, id);
    }
    let other = cluster.others(leader).into_iter().find(|other| *other != id).unwrap();
    cluster.node(other).kill();
    for (at, name) in [(leader, "through the leader"), (id, "through the moved one")] {
        insist(&[cluster.api(at)], secs(10), |api| api.acquire(&json!({"name": name}))).must_be_ok();
    }
    must_reach(&cluster, office, id);
    cluster.node(other).start();
    cluster.wait_until_ready();
    let renewal = insist(&cluster.apis(), secs(10), |api| api.renew("L", &held.token, 60_000));
    held.renewed(&renewal.must_be_ok());
}

#[test]
fn a_node_is_added_only_where_it_says_that_it_is() {
    let mut cluster = Cluster::start(1);
    let api = cluster.api(1);
    let id = cluster.start_standby();
    let (peer, own) = (cluster.node(id).peer_address().to_owned(), cluster.node(id).api_address.to_string());
    let by_name = |address: &str| address.replace("127.0.0.1", "localhost");
    for (asked_peer, asked_api, field, advertised) in [
        (by_name(&peer), own.clone(), "peer", &peer),
        (peer.clone(), by_name(&own), "api", &own),
        (peer.clone(), free_address().to_string(), "api", &own),
    ] {
        let body = json!({"id": id, "peer": asked_peer, "api": asked_api, "wait_ms": 20_000});
        let refused = api.membership("POST", MEMBERS, &body).unwrap().must_be(400, "invalid_field");
        let error = &refused.body["error"];
        assert_eq!((&error["field"], &error["allowed"]), (&json!(field), &json!(advertised)), "{refused:?}");
    }
    assert_eq!(api.role_of(id), None, "nothing was changed");
    assert!(cluster.node(id).is_running(), "{}", cluster.node(id).output());
    api.add_member(cluster.node(id)).unwrap().must_be_ok();
    api.promote(id).unwrap().must_be_ok();
    cluster.wait_until_ready();
}

#[test]
fn nobody_is_sent_to_an_address_that_cannot_be_dialed_or_is_anothers() {
    let mut cluster = Cluster::start(1);
    let api = cluster.api(1);
    let id = cluster.start_standby();
    api.add_member(cluster.node(id)).unwrap().must_be_ok();
    let (peer, own) = (cluster.node(id).peer_address().to_owned(), cluster.node(id).api_address.to_string());
    let (peer_1, api_1) = (cluster.node(1).peer_address().to_owned(), cluster.node(1).api_address.to_string());
    let free = free_address().to_string();
    for (peer, own, status, code) in [
        ("0.0.0.0:1", own.as_str(), 400, "invalid_field"),
        (&peer, "[::]:1", 400, "invalid_field"),
        (&peer, "127.0.0.1:0", 400, "invalid_field"),
        (&peer, "http://127.0.0.1:1", 400, "invalid_field"),
        (&free, &free, 400, "invalid_field"),
        (&peer_1, &own, 409, "address_in_use"),
        (&api_1, &own, 409, "address_in_use"),
        (&peer, &peer_1, 409, "address_in_use"),
        (&peer, &api_1, 409, "address_in_use"),
    ] {
        let to = json!({"peer": peer, "api": own});
        api.membership("PUT", &format!("{MEMBERS}/{id}"), &to).unwrap().must_be(status, code);
        let new = json!({"id": 9, "peer": peer, "api": own});
        api.membership("POST", MEMBERS, &new).unwrap().must_be(status, code);
    }
    let known = member(&api, id).expect("it is a member");
    assert_eq!((&known["peer"], &known["api"]), (&json!(peer), &json!(own)));
}

#[test]
fn a_node_that_lost_its_directory_is_never_taken_for_the_member_that_it_was() {
    let mut cluster = Cluster::start(1);
    let api = cluster.api(1);
    let id = cluster.start_standby();
    api.add_member(cluster.node(id)).unwrap().must_be_ok();
    cluster.node(id).kill();
    assert_eq!(api.add_member(cluster.node(id)).unwrap().must_be_ok().body["changed"], false, "it may come back");

    cluster.node(id).wipe();
    cluster.node(id).start();
    let status = cluster.node(id).wait_for_exit(secs(20));
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "{}", cluster.node(id).output());
    assert!(cluster.node(id).output().contains("under an id that was never used"), "{}", cluster.node(id).output());

    // One that waits for something else hears nothing of it; whoever adds it does.
    let silent = free_address().to_string();
    cluster.node(id).wipe();
    cluster.restart_as(id, &["--bootstrap", "--join", &silent]);
    let refused = insist(&[api], secs(20), |api| {
        let answer = api.add_member(cluster.nodes().find(|node| node.id == id).unwrap())?;
        if answer.status == 200 { Err(std::io::ErrorKind::NotConnected.into()) } else { Ok(answer) }
    });
    let refused = refused.must_be(409, "node_id_reused");
    assert!(refused.text.contains("remove node"), "{refused:?}");
}

/// It was killed, or nobody was left to answer, between its vote and the word of it.
#[test]
fn a_voter_whose_promotion_was_never_answered_is_a_voter_all_the_same() {
    let mut cluster = Cluster::start(3);
    let file = cluster.node(2).dir.join("identity.json");
    let read = || serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap();
    eventually("it notes that it has joined", secs(10), || (read()["joining"] == false).then_some(()));
    for more in [&[][..], &["--join", "127.0.0.1:1"], &["--standby"]] {
        cluster.kill_all();
        let mut unanswered = read();
        unanswered["joining"] = json!(true);
        fs::write(&file, unanswered.to_string()).unwrap();
        let asked = |cluster: &mut Cluster| cluster.node(2).output().matches("not joined yet").count();
        let before = asked(&mut cluster);
        cluster.restart_as(2, more);
        cluster.each(&[1, 3], Node::start);
        eventually("it notes by itself that it has joined", secs(20), || {
            assert!(cluster.node(2).is_running(), "{more:?}: {}", cluster.node(2).output());
            (read()["joining"] == false).then_some(())
        });
        cluster.wait_until_ready();
        assert_eq!(asked(&mut cluster), before, "{more:?}: {}", cluster.node(2).output());
    }
}

fn put(api: &Api, id: u64, (api_there, peer): (SocketAddr, SocketAddr)) -> Answer {
    let to = json!({"peer": peer.to_string(), "api": api_there.to_string()});
    api.membership("PUT", &format!("{MEMBERS}/{id}"), &to).unwrap()
}

fn new_place() -> (SocketAddr, SocketAddr) {
    (free_address(), free_address())
}

#[test]
fn a_moved_member_is_away_until_it_is_started_where_it_was_moved_to() {
    for peer_stays in [false, true] {
        let mut cluster = Cluster::start(3);
        let (leader, [moved, other]) = cluster.leader_and_others();
        let api = cluster.api(leader);
        let (api_there, mut peer) = new_place();
        if peer_stays {
            peer = cluster.node(moved).peer_address().parse().unwrap();
        }
        put(&api, moved, (api_there, peer)).must_be_ok();
        let status = cluster.node(moved).wait_for_exit(secs(20));
        let said = cluster.node(moved).output();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains(&api_there.to_string()) && said.contains(&peer.to_string()), "{said}");
        eventually("the leader knows that it is away", secs(10), || {
            let view = api.cluster().ok()?;
            (member(&api, moved)?["reachable"] == false && view.number("failures_tolerated") == 0).then_some(())
        });
        let refused = put(&api, other, new_place()).must_be(409, "would_lose_quorum");
        assert!(refused.text.contains(&format!("[{moved}]")), "{refused:?}");
        cluster.restart_at(moved, api_there, peer);
        cluster.wait_until_ready();
        cluster.must_work();
    }
}

#[test]
fn a_moved_member_does_not_lead_where_nobody_finds_it() {
    let mut cluster = Cluster::start(3);
    let held = take(&cluster.api(1), "L", secs(60));
    let (leader, [moved, other]) = cluster.leader_and_others();
    let (api_there, peer) = new_place();
    put(&cluster.api(leader), moved, (api_there, peer)).must_be_ok();
    cluster.node(leader).kill();
    let until = now() + secs(3);
    eventually("for some elections nobody leads", secs(20), || {
        for id in [moved, other] {
            let view = cluster.api(id).patient_for(secs(1)).cluster();
            assert!(view.as_ref().map_or(true, |view| view.body["leader"].as_u64() != Some(moved)), "{view:?}");
        }
        (now() > until).then_some(())
    });
    assert_eq!(cluster.api(moved).reason_not_ready().as_deref(), Some("doubted"));
    cluster.node(moved).kill();
    cluster.restart_at(moved, api_there, peer);
    let renewal =
        insist(&[cluster.api(moved), cluster.api(other)], secs(20), |api| api.renew("L", &held.token, 60_000));
    held.renewed(&renewal.must_be_ok());
    cluster.node(leader).start();
    cluster.wait_until_ready();
}

#[test]
fn a_leader_that_is_moved_hands_over_first() {
    let mut cluster = Cluster::start(3);
    let (leader, others) = cluster.leader_and_others::<2>();
    let (api_there, peer) = new_place();
    let moved = put(&cluster.api(leader), leader, (api_there, peer)).must_be_ok();
    assert!(others.contains(&moved.number("leader")), "{moved:?}");
    assert_eq!(cluster.node(leader).wait_for_exit(secs(20)).code(), Some(2), "{}", cluster.node(leader).output());
    cluster.restart_at(leader, api_there, peer);
    cluster.wait_until_ready();
}

#[test]
fn nobody_is_moved_to_where_another_node_runs() {
    let mut cluster = Cluster::start(3);
    let (leader, [moved, _]) = cluster.leader_and_others();
    let standby = cluster.start_standby();
    let taken: SocketAddr = cluster.node(standby).peer_address().parse().unwrap();
    eventually("the other node runs", secs(20), || cluster.api(standby).cluster().ok());
    put(&cluster.api(leader), moved, (free_address(), taken)).must_be(409, "node_unreachable");
    assert!(cluster.node(moved).is_running());
}
