//! What an operator sees who watches nothing but `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;

use crate::harness::api::Api;
use crate::harness::clock::{eventually, secs};
use crate::harness::cluster::Cluster;
use crate::harness::locker::{insist, take, take_from_any};

const WITHIN: Duration = secs(20);

/// One scrape: each series, without the product's prefix, and its value.
#[derive(Debug)]
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// `None` if the node does not answer.
    fn of(api: Api) -> Option<Self> {
        let page = page(api)?;
        let samples = page.lines().filter_map(|line| line.strip_prefix("lockstead_")?.rsplit_once(' '));
        Some(Self(samples.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()))
    }

    fn get(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// A gauge per member.
    fn of_member(&self, gauge: &str, id: u64) -> Option<f64> {
        self.get(&format!(r#"{gauge}{{member="{id}"}}"#))
    }

    /// All of these series have these values.
    fn shows(&self, expected: &[(&str, f64)]) -> bool {
        expected.iter().all(|(series, value)| self.get(series).is_some_and(|shown| same(shown, *value)))
    }

    fn tells_of_members(&self) -> bool {
        self.0.keys().any(|series| series.contains("{member="))
    }
}

/// Gauges of counted things are whole numbers.
fn same(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.5
}

fn page(api: Api) -> Option<String> {
    let answer = api.patient_for(secs(1)).call("GET", "/metrics", None, Duration::ZERO).ok()?;
    Some(answer.must_be_ok().text.clone())
}

/// The sum of a gauge over all nodes that answer.
fn sum(cluster: &Cluster, gauge: &str) -> f64 {
    cluster.apis().into_iter().filter_map(|api| Scrape::of(api)?.get(gauge)).sum()
}

/// Waits until a node that leads shows this; who that is may change on a slow machine.
#[track_caller]
fn until_leader_shows(cluster: &Cluster, what: &str, is_shown: impl Fn(&Scrape) -> bool) {
    eventually(what, WITHIN, || {
        let mut shown = cluster.apis().into_iter().filter_map(Scrape::of);
        shown.any(|shown| shown.shows(&[("leading", 1.0)]) && is_shown(&shown)).then_some(())
    });
}

#[test]
fn metrics_follow_a_member_that_dies_falls_behind_comes_back_and_is_removed() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let victim = cluster.others(leader)[0];
    let all_reached = |shown: &Scrape| {
        let is_reached = |id| shown.of_member("member_reachable", id) == Some(1.0);
        shown.shows(&[("ready", 1.0), ("voters", 3.0), ("failures_tolerated", 1.0)])
            && [1, 2, 3].into_iter().all(is_reached)
    };
    until_leader_shows(&cluster, "it reaches all", all_reached);
    eventually("one node of three leads, all are ready", WITHIN, || {
        (same(sum(&cluster, "leading"), 1.0) && same(sum(&cluster, "ready"), 3.0)).then_some(())
    });

    cluster.node(victim).kill();
    let rest = cluster.others(victim);
    until_leader_shows(&cluster, "the dead member alone is not reached, and no other may fail", |shown| {
        shown.of_member("member_reachable", victim) == Some(0.0)
            && rest.iter().all(|id| shown.of_member("member_reachable", *id) == Some(1.0))
            && shown.shows(&[("voters", 3.0), ("failures_tolerated", 0.0)])
    });
    eventually("one of those left leads, and the other knows nothing of the members", WITHIN, || {
        let shown: Vec<_> = cluster.apis().into_iter().filter_map(Scrape::of).collect();
        let follows = [("ready", 1.0), ("leading", 0.0), ("failures_tolerated", 1.0)];
        let knows_nothing = |shown: &Scrape| shown.shows(&follows) && !shown.tells_of_members();
        (same(sum(&cluster, "leading"), 1.0) && shown.iter().any(knows_nothing)).then_some(())
    });
    for at in 0..5 {
        take_from_any(&cluster.apis_without(victim), &format!("missed {at}"), secs(60));
    }
    until_leader_shows(&cluster, "it lacks what was logged since", |shown| {
        shown.of_member("member_lag_entries", victim) >= Some(5.0) && shown.shows(&[("live_records", 5.0)])
    });

    cluster.node(victim).start();
    until_leader_shows(&cluster, "it is reached again", all_reached);
    until_leader_shows(&cluster, "it has caught up", |shown| shown.of_member("member_lag_entries", victim) < Some(5.0));

    insist(&cluster.apis_without(victim), secs(20), |api| api.remove(victim)).must_be_ok();
    until_leader_shows(&cluster, "nothing is shown of a node that is no member", |shown| {
        let gone = ["member_reachable", "member_lag_entries"].map(|gauge| shown.of_member(gauge, victim));
        gone == [None, None] && shown.shows(&[("voters", 2.0), ("failures_tolerated", 0.0)])
    });
}

#[test]
fn a_leader_that_lost_its_majority_says_so_at_once_when_it_is_scraped() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    for id in cluster.others(leader) {
        cluster.node(id).kill();
    }
    let shown = eventually("it is not ready any more", WITHIN, || {
        let nobody = [("ready", 0.0), (r#"not_ready{reason="no_leader"}"#, 1.0)];
        Scrape::of(cluster.api(leader)).filter(|shown| shown.shows(&nobody))
    });
    assert!(shown.shows(&[("leading", 0.0)]), "{shown:?}");
    assert!(!shown.tells_of_members(), "what it knew of others may be wrong: {shown:?}");
}

#[test]
fn metrics_and_the_view_of_the_cluster_say_the_same_and_cost_no_log_entry() {
    let cluster = Cluster::start(3);
    eventually("for a while nothing is logged, and both say the same of every node", WITHIN, || {
        for api in cluster.apis() {
            let before = api.cluster().ok()?;
            let shown = (0..20).map(|_| Scrape::of(api)).collect::<Option<Vec<_>>>()?.pop()?;
            let after = api.cluster().ok()?;
            let pairs = [
                ("last_log_index", "last_log"),
                ("committed_index", "committed"),
                ("applied_index", "applied"),
                ("term", "term"),
                ("failures_tolerated", "failures_tolerated"),
                ("live_records", "live_records"),
            ];
            for (gauge, field) in pairs {
                let gauge = format!("{:.0}", shown.get(gauge)?);
                (gauge == before.number(field).to_string() && gauge == after.number(field).to_string()).then_some(())?;
            }
        }
        Some(())
    });
}

/// Each metric and its labels, as pages show them.
fn metrics_on(pages: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut metric = String::new();
    for line in pages.iter().flat_map(|page| page.lines()) {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            metric = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        }
        if !line.starts_with('#') {
            let labels = line.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
            let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            found.entry(metric.clone()).or_default().extend(names.filter(|name| name != "le"));
        }
    }
    found
}

/// Each metric and its labels, as the table of the manual lists them.
fn metrics_in_the_manual() -> BTreeMap<String, BTreeSet<String>> {
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = manual.lines().filter(|line| line.starts_with("| `lockstead_"));
    let metrics = rows.flat_map(|row| {
        let cells: Vec<_> = row.split('|').collect();
        let labels = quoted(cells[2]);
        quoted(cells[1]).into_iter().map(move |name| (name, labels.clone()))
    });
    metrics.collect()
}

#[test]
fn every_metric_stands_in_the_manual_with_its_labels_and_every_metric_of_the_manual_exists() {
    let mut cluster = Cluster::start(1);
    let api = cluster.api(1);
    take(&api, "L", secs(60));
    api.acquire(&json!({"name": "L"})).unwrap().must_be(409, "held");
    let waits = cluster.start_standby();
    let not_ready = eventually("a node that waits answers", WITHIN, || page(cluster.api(waits)));
    let shown = metrics_on(&[page(api).unwrap(), not_ready]);
    assert!(shown.len() > 30, "is the page understood? {shown:?}");
    assert_eq!(metrics_in_the_manual(), shown);
}
