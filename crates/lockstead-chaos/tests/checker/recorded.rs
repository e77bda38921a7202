//! Recorded histories, one case each. A file in `wrong` bears the name of its violation up to the first dot.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lockstead_chaos::checker::{Kind, Limits, Verdict, check};
use lockstead_chaos::history::{Answer, History};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the recorded histories are in the tree")
        .map(|entry| entry.expect("a file of the tree").path())
        .collect();
    files.sort();
    assert!(files.len() > 10, "{files:?}");
    files
}

fn read(file: &Path) -> History {
    History::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn each_wrong_history_is_rejected_with_the_name_of_its_violation() {
    for file in files("wrong") {
        let report = check(&read(&file), &Limits::default());
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let expected = stem.split('.').next().unwrap();
        let mut kinds = report.violations.iter().map(|violation| violation.kind.name().replace(' ', "-"));
        assert!(kinds.any(|kind| kind == expected), "{stem}: {report}");
        assert_eq!(report.verdict(), Verdict::Violation);
    }
}

#[test]
fn each_right_history_is_accepted() {
    for file in files("right") {
        let report = check(&read(&file), &Limits::default());
        assert_eq!(report.verdict(), Verdict::Ok, "{}: {report}", file.display());
    }
}

#[test]
fn every_kind_of_violation_has_a_history() {
    let stems = files("wrong").into_iter().map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
    let recorded: BTreeSet<String> = stems.map(|stem| stem.split('.').next().unwrap().to_owned()).collect();
    let kinds = Kind::ALL.iter().map(|kind| kind.name().replace(' ', "-")).collect();
    assert_eq!(recorded, kinds);
}

#[test]
fn a_violation_shows_the_calls_concerned_and_no_others() {
    let file = files("wrong").into_iter().find(|file| file.ends_with("two-holders.released.jsonl")).unwrap();
    let mut history = read(&file);
    // Noise around it: a holder before, reads, and another lock.
    let mut other = history.clone();
    other.calls.iter_mut().for_each(|call| {
        (call.id, call.sent_us) = (call.id + 100, call.sent_us + 20_000_000);
        call.received_us = call.received_us.map(|received_us| received_us + 20_000_000);
    });
    other.calls.retain(|call| call.client == 3);
    history.calls.append(&mut other.calls);
    let report = check(&history, &Limits::default());
    let first = &report.violations[0];
    let shown: Vec<u64> = first.calls.iter().map(|call| call.id).collect();
    assert_eq!((first.kind, shown), (Kind::TwoHolders, vec![1, 2]), "{report}");
}

#[test]
fn what_can_t_be_decided_in_time_is_no_success() {
    let file = files("right").into_iter().find(|file| file.ends_with("waits-in-turn.jsonl")).unwrap();
    let limits = Limits { states_max: 0, ..Limits::default() };
    let report = check(&read(&file), &limits);
    assert_eq!((report.verdict(), report.undecided.len()), (Verdict::Undecided, 1), "{report}");
    assert_eq!(report.undecided[0].lock, "a");
}

#[test]
fn a_history_in_which_nobody_was_told_anything_is_no_success() {
    let file = files("right").into_iter().find(|file| file.ends_with("waits-in-turn.jsonl")).unwrap();
    let mut history = read(&file);
    history.calls.iter_mut().for_each(|call| call.answer = Answer::refused(503, "no_leader"));
    let report = check(&history, &Limits::default());
    assert_eq!((report.verdict(), report.undecided.len()), (Verdict::Undecided, 0), "{report}");
}
