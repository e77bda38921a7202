//! The leader dies while a change of the members is under way.
//!
//! Such a change takes two entries of the log: one under which majorities of the old *and* of the new voters decide,
//! and one that leaves the new ones alone. What is between the two is called joint here, as in the Raft paper.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::api::Api;
use crate::harness::clock::{eventually, ms, now, pause_until, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::gather::{client, done};
use crate::harness::http::Answer;
use crate::harness::locker::{Held, insist, take};
use crate::harness::proxy::Mode;

/// How late bytes come to a node where a change has to be caught before that node has it.
const BEHIND: Duration = ms(600);
/// Where bytes come so late, everything takes its time.
const PATIENT: [&str; 6] = ["--heartbeat-ms", "2000", "--election-min-ms", "4000", "--election-max-ms", "8000"];

/// What a node says of the members: the log index of what is in force there.
fn membership_index(view: &Answer) -> u64 {
    let (_, index) = view.string("membership").split_once('-').expect("<term>-<index>");
    index.parse().expect("an index")
}

/// A call of the API by a client of its own; it waits for what has to come first.
fn ask(api: Api, method: &'static str, path: String, mut body: Value) -> JoinHandle<io::Result<Answer>> {
    body["wait_ms"] = 20_000.into();
    client(move || api.membership(method, &path, &body))
}

/// Orders a change although the quorum would be lost.
fn force(cluster: &Cluster) -> Value {
    json!({"force": cluster.apis()[0].cluster().expect("an answer").string("cluster_id")})
}

/// Asks until it is granted.
fn until_granted(apis: &[Api], ask: impl Fn(&Api) -> io::Result<Answer>) -> Answer {
    eventually("the call is granted", secs(60), || {
        apis.iter().find_map(|api| ask(api).ok().filter(|answer| answer.status == 200))
    })
}

/// A cluster in which a change is under way that has come as far as its leader, and maybe to others, and cannot commit.
struct Half {
    cluster: Cluster,
    held: Vec<Held>,
    /// Who leads, and logged it.
    leader: u64,
    /// The log index of what it logged.
    logged: u64,
    /// Whoever asked for it waits for an answer.
    asked: Option<JoinHandle<io::Result<Answer>>>,
}

impl Half {
    fn of(
        cluster: Cluster,
        leader: u64,
        reached: &[u64],
        ask: impl FnOnce(&Cluster) -> JoinHandle<io::Result<Answer>>,
    ) -> Self {
        let held =
            cluster.apis().iter().zip(0..).map(|(api, at)| take(api, &format!("kept {at}"), secs(300))).collect();
        let asked = ask(&cluster);
        let logged = eventually("the change is logged and not committed", secs(20), || {
            let own = cluster.api(leader).cluster().ok()?;
            let logged = membership_index(&own);
            (logged > own.number("committed")).then_some(logged)
        });
        let have_it = || reached.iter().all(|id| membership_index(&cluster.api(*id).cluster().unwrap()) == logged);
        eventually("others have it", secs(5), || have_it().then_some(()));
        Self { cluster, held, leader, logged, asked: Some(asked) }
    }

    /// Of five voters, one is to leave, and the leader hears two others no more: with the one that is to leave it has
    /// three of five, and two of the four that are to stay.
    fn leaving(method: &'static str, what: &str, through: impl FnOnce(&Roles) -> u64) -> (Self, Roles) {
        let cluster = Setup::of(5).with_proxied_peers().start();
        let (leader, [unheard, unheard_too, heard, leaving]) = cluster.leader_and_others();
        let who = Roles { leader, heard, leaving };
        let path = format!("/v1/admin/members/{leaving}{what}");
        let half = Self::of(cluster, leader, &[heard, leaving], |cluster| {
            for unheard in [unheard, unheard_too] {
                cluster.link(leader, unheard).set(Mode::StallAnswers);
            }
            ask(cluster.api(through(&who)), method, path, force(cluster))
        });
        (half, who)
    }

    fn survivors(&self) -> Vec<Api> {
        self.cluster.apis_without(self.leader)
    }

    fn heal(&self) {
        for id in self.cluster.ids() {
            for link in self.cluster.links_of(id) {
                link.set(Mode::Pass);
                link.delay(Duration::ZERO);
            }
        }
    }

    fn kill_leader(&mut self) {
        self.cluster.node(self.leader).kill();
        self.heal();
    }

    /// What whoever asked for the change was answered in the end.
    fn answer(&mut self) -> io::Result<Answer> {
        done(self.asked.take().expect("the answer comes once"))
    }

    /// Every survivor has come past what the old leader had logged.
    fn must_be_finished(&self) {
        let is_past = |api: &Api| api.cluster().is_ok_and(|view| membership_index(&view) > self.logged);
        eventually("no change is half made", secs(30), || self.survivors().iter().all(is_past).then_some(()));
    }

    /// All survivors say that it is this; all but itself, that it is no member.
    fn must_show(&self, id: u64, role: Option<&str>) {
        let voter = |shown: String| if shown == "leader" { "follower".to_owned() } else { shown };
        let shows = |api: &Api| api.cluster().is_ok() && api.role_of(id).map(voter).as_deref() == role;
        let what = format!("node {id} is shown as {role:?}");
        let apis: Vec<Api> = match role {
            Some(_) => self.survivors(),
            None => self.survivors().into_iter().filter(|api| api.address != self.cluster.api(id).address).collect(),
        };
        eventually(&what, secs(30), || apis.iter().all(shows).then_some(()));
    }

    fn must_still_be_held(&self, apis: &[Api]) {
        for held in &self.held {
            held.renewed(&insist(apis, secs(15), |api| api.renew(&held.name, &held.token, 60_000)));
        }
    }

    /// Everybody is there, and all is as if nothing had been.
    fn must_go_on(self) {
        self.cluster.wait_until_ready();
        self.must_still_be_held(&self.cluster.apis());
        self.cluster.must_work();
    }
}

/// Who is who while a voter leaves.
#[derive(Clone, Copy)]
struct Roles {
    leader: u64,
    heard: u64,
    leaving: u64,
}

#[test]
fn a_demotion_whose_leader_dies_is_finished_by_the_next_one() {
    let (mut half, Roles { leaving, .. }) = Half::leaving("POST", "/demote", |who| who.heard);
    half.kill_leader();
    half.must_still_be_held(&half.survivors());
    half.must_be_finished();
    half.must_show(leaving, Some("learner"));
    half.answer().expect("whoever asked another node is answered").must_be_ok();
    let repeated = half.survivors()[0].demote(leaving).unwrap().must_be_ok();
    assert_eq!(repeated.body["changed"], false, "{repeated:?}");
    until_granted(&half.survivors(), |api| api.promote(leaving));
    half.cluster.node(half.leader).start();
    half.must_go_on();
}

#[test]
fn a_demotion_that_was_asked_for_once_is_finished_although_nobody_repeats_it() {
    let (mut half, Roles { leaving, .. }) = Half::leaving("POST", "/demote", |who| who.leader);
    half.kill_leader();
    half.answer().expect_err("the node that was asked has died");
    half.must_be_finished();
    half.must_show(leaving, Some("learner"));
    half.must_still_be_held(&half.survivors());
}

#[test]
fn a_removal_whose_leader_dies_is_gone_through_with_once_it_is_repeated() {
    let (mut half, Roles { leaving, .. }) = Half::leaving("DELETE", "", |who| who.leader);
    half.kill_leader();
    half.answer().expect_err("the node that was asked has died");
    let repeated = until_granted(&half.survivors(), |api| api.remove(leaving));
    assert_eq!(repeated.body["changed"], true, "{repeated:?}");
    half.must_show(leaving, None);
    half.cluster.node(half.leader).start();
    half.cluster.shrink(leaving);
    half.must_go_on();
}

#[test]
fn a_voter_that_is_to_leave_and_leads_next_hands_over_before_it_goes() {
    let (mut half, Roles { leaving, .. }) = Half::leaving("DELETE", "", |who| who.leader);
    for id in half.cluster.others(leaving) {
        // Nobody else can ask for votes.
        for to in half.cluster.others(id) {
            half.cluster.link(id, to).set(Mode::StallRequests);
        }
    }
    half.cluster.node(half.leader).kill();
    assert_eq!(half.cluster.leader_among(&[leaving]), leaving);
    half.heal();
    half.must_still_be_held(&half.survivors());
    until_granted(&half.survivors(), |api| api.remove(leaving));
    half.must_show(leaving, None);
    half.cluster.node(half.leader).start();
    half.cluster.shrink(leaving);
    half.must_go_on();
}

#[test]
fn whoever_is_to_vote_again_before_the_change_is_finished_does() {
    let (mut half, Roles { leaving, .. }) = Half::leaving("POST", "/demote", |who| who.leader);
    half.kill_leader();
    until_granted(&half.survivors(), |api| api.promote(leaving));
    half.must_be_finished();
    half.cluster.node(half.leader).start();
    half.must_go_on();
}

#[test]
fn a_leader_that_was_cut_off_in_its_change_makes_others_later() {
    let (mut half, Roles { leader, leaving, heard }) = Half::leaving("POST", "/demote", |who| who.heard);
    half.cluster.links_of(leader).for_each(|link| link.set(Mode::Cut));
    half.must_be_finished();
    half.must_show(leaving, Some("learner"));
    half.answer().expect("whoever asked another node is answered").must_be_ok();
    half.heal();
    until_granted(&half.survivors(), |api| api.transfer(Some(leader)));
    for id in [leaving, heard] {
        until_granted(&[half.cluster.api(leader)], |api| api.promote(id));
    }
    half.must_go_on();
}

#[test]
fn a_change_of_a_leader_that_dies_and_comes_back_is_finished_with_it() {
    let cluster = Setup::of(3).with_proxied_peers().start();
    let (leader, [unheard, leaving]) = cluster.leader_and_others();
    let mut half = Half::of(cluster, leader, &[leaving], |cluster| {
        cluster.link(leader, unheard).set(Mode::StallAnswers);
        ask(cluster.api(leaving), "POST", format!("/v1/admin/members/{leaving}/demote"), force(cluster))
    });
    half.kill_leader();
    // Without it there is no majority of the two that stay.
    half.cluster.node(leader).start();
    half.must_be_finished();
    half.must_show(leaving, Some("learner"));
    half.answer().expect("whoever asked another node is answered").must_be_ok();
    until_granted(&half.survivors(), |api| api.promote(leaving));
    half.must_go_on();
}

#[test]
fn a_promotion_whose_leader_dies_is_finished_by_the_next_one() {
    let cluster = Setup::of(4).with_proxied_peers().with_args(&PATIENT).start();
    let (leader, [unheard, heard, learner]) = cluster.leader_and_others();
    until_granted(&[cluster.api(leader)], |api| api.demote(learner));
    let mut half = Half::of(cluster, leader, &[heard], |cluster| {
        // What the learner takes is heard of late, and until then the leader has two of four.
        cluster.link(leader, unheard).set(Mode::StallAnswers);
        cluster.link(leader, learner).delay(BEHIND / 2);
        ask(cluster.api(heard), "POST", format!("/v1/admin/members/{learner}/promote"), json!({}))
    });
    half.kill_leader();
    half.must_be_finished();
    half.answer().expect("whoever asked another node is answered").must_be_ok();
    half.must_show(learner, Some("follower"));
    let repeated = half.survivors()[0].promote(learner).unwrap().must_be_ok();
    assert_eq!(repeated.body["changed"], false, "{repeated:?}");
    half.must_still_be_held(&half.survivors());
    half.cluster.node(leader).start();
    half.must_go_on();
}

#[test]
fn a_change_that_only_its_dead_leader_knew_of_is_made_anew() {
    let cluster = Setup::of(4).with_proxied_peers().with_args(&PATIENT).start();
    let (leader, [asked, _, leaving]) = cluster.leader_and_others();
    let mut half = Half::of(cluster, leader, &[], |cluster| {
        for other in cluster.others(leader) {
            cluster.link(leader, other).delay(BEHIND);
        }
        ask(cluster.api(asked), "POST", format!("/v1/admin/members/{leaving}/demote"), json!({}))
    });
    half.cluster.links_of(leader).for_each(|link| link.set(Mode::Cut));
    let knows = |api: &Api| membership_index(&api.cluster().unwrap()) >= half.logged;
    assert!(!half.survivors().iter().any(knows), "the case needs a change that nobody else has");
    half.kill_leader();
    // If the next leader is the one that is to leave, its handing over may take longer than the first call: at these
    // timeouts, it waits 12 s for the dead one to answer.
    let answer = half.answer().expect("whoever asked another node is answered");
    assert!(matches!(answer.status, 200 | 503), "{answer:?}");
    let again = json!({"wait_ms": 20_000});
    until_granted(&half.survivors(), |api| {
        api.membership("POST", &format!("/v1/admin/members/{leaving}/demote"), &again)
    });
    half.must_show(leaving, Some("learner"));
    half.cluster.node(leader).start();
    until_granted(&half.survivors(), |api| api.promote(leaving));
    half.must_go_on();
}

#[test]
fn a_new_node_whose_vote_died_with_the_leader_asks_for_it_once_more() {
    let mut cluster = Setup::of(3).with_proxied_peers().with_args(&PATIENT).start();
    let (leader, others) = cluster.leader_and_others::<2>();
    for other in others {
        cluster.link(leader, other).delay(BEHIND);
    }
    let joiner = cluster.start_joiner();
    let votes = |at: &Api| at.role_of(joiner).is_some_and(|role| role != "learner");
    eventually("it has the entry that makes it a voter", secs(30), || votes(&cluster.api(joiner)).then_some(()));
    cluster.links_of(leader).for_each(|link| link.set(Mode::Cut));
    let apis = others.map(|id| cluster.api(id));
    assert!(!apis.iter().any(votes), "the case needs a change that only the leader and the new node have");
    cluster.node(leader).kill();
    eventually("it has no answer to its call", secs(5), || {
        cluster.node(joiner).output().contains("not joined yet").then_some(())
    });
    // It has to ask once more while it has that entry; if it does not, the case is easier.
    pause_until(now() + ms(500));
    // With more in its log than the others, it would lead them.
    cluster.node(joiner).freeze();
    cluster.leader_among(&others);
    cluster.node(joiner).thaw();
    eventually("it has its vote from the next leader", secs(60), || apis.iter().all(votes).then_some(()));
    cluster.links_of(leader).for_each(|link| link.set(Mode::Pass));
    cluster.node(leader).start();
    cluster.wait_until_ready();
    cluster.must_work();
}
