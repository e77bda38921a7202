//! The transcripts of docs/operations.md are true.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::harness::clock::{eventually, ms, secs};
use crate::harness::cluster::Cluster;
use crate::harness::http::{Answer, Conn};

/// A command and the answer that the page shows.
#[derive(Debug)]
struct Exchange {
    words: Vec<String>,
    status: u16,
    answer: Value,
}

/// Every `$ curl …` of the page with the line after it.
fn exchanges(page: &str) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ curl ") else { continue };
        let shown = lines.next().expect("each command is followed by its answer");
        let (status, body) = shown.split_once(' ').expect("a status and a body");
        let answer = serde_json::from_str(body).unwrap_or_else(|error| panic!("{shown}: {error}"));
        exchanges.push(Exchange { words: words(command), status: status.parse().expect("a status"), answer });
    }
    exchanges
}

/// The words of a command line; single quotes only.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    words.push(word);
    words
}

/// Runs a command as curl would.
fn run(words: &[String]) -> Answer {
    let (mut method, mut body, mut headers, mut url) = (None, None, String::new(), None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value").clone();
        match word.as_str() {
            "-s" => {}
            "-X" => method = Some(value()),
            "-d" => body = Some(value()),
            "-H" => headers = format!("{headers}{}\r\n", value()),
            address => url = Some(address.strip_prefix("http://").expect("an option that is known").to_owned()),
        }
    }
    let url = url.expect("an address");
    let (address, path) = url.split_once('/').expect("a path");
    let body = body.unwrap_or_default();
    let method = method.unwrap_or_else(|| if body.is_empty() { "GET" } else { "POST" }.to_owned());
    let length = body.len();
    let request =
        format!("{method} /{path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {length}\r\n\r\n{body}");
    let mut conn = Conn::open(address.parse().expect("an address of this cluster")).expect("a connection");
    conn.call(request.as_bytes(), secs(70)).expect("an answer")
}

/// The same fields with values of the same kinds.
fn same_shape(shown: &Value, found: &Value) -> bool {
    match (shown, found) {
        (Value::Object(shown), Value::Object(found)) => {
            shown.keys().eq(found.keys()) && shown.iter().all(|(key, value)| same_shape(value, &found[key]))
        }
        (Value::Array(shown), Value::Array(found)) => match (shown.first(), found.first()) {
            (Some(shown), Some(found)) => same_shape(shown, found),
            _ => true,
        },
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => true,
        _ => shown == found,
    }
}

#[test]
fn the_procedures_for_operators_give_the_answers_that_are_shown() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let exchanges = exchanges(&std::fs::read_to_string(page).expect("the page is there"));
    assert!(exchanges.len() >= 8, "only {} commands: are they still written as `$ curl`?", exchanges.len());
    let mut cluster = Cluster::start(3);
    cluster.api(2).transfer(Some(1)).expect("an answer").must_be_ok();
    assert_eq!(cluster.start_standby(), 4);
    let mut addresses = BTreeMap::new();
    for node in cluster.nodes() {
        addresses.insert(format!("10.0.0.{}:7401", node.id), node.api_address.to_string());
        addresses.insert(format!("10.0.0.{}:7501", node.id), node.peer_address().to_owned());
    }
    for Exchange { words, status, answer } in exchanges {
        let mut real = words.clone();
        for word in &mut real {
            for (shown, used) in &addresses {
                *word = word.replace(shown, used);
            }
        }
        let found = run(&real);
        assert_eq!(found.status, status, "{words:?}: {found:?}");
        assert!(same_shape(&answer, &found.body), "{words:?}: shown {answer}, found {}", found.text);
        assert_eq!(answer["error"]["code"], found.body["error"]["code"], "{words:?}");
        // The next command is of a cluster at rest.
        eventually("all that is left agrees on a leader", secs(20), || {
            let ready = |api: &crate::harness::api::Api| api.patient_for(ms(1_000)).is_ready();
            cluster.apis_without(2).iter().filter(|api| ready(api)).nth(1).map(|_| ())
        });
    }
}
