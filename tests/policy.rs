//! What the workspace may depend on, and what its source must not contain.
//!
//! Read from `cargo metadata` and from the files themselves, so that a change of a boundary is a change of this file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Each crate of the workspace, and the crates of the workspace that it may name: dependencies point inwards.
const DIRECTIONS: [(&str, &[&str]); 8] = [
    ("lockstead-core", &[]),
    ("lockstead-api", &["lockstead-core"]),
    ("lockstead-flock", &[]),
    ("lockstead-chaos", &[]),
    ("lockstead-raft", &["lockstead-core", "lockstead-flock"]),
    ("lockstead-client", &["lockstead-api"]),
    ("lockstead-server", &["lockstead-api", "lockstead-core", "lockstead-raft"]),
    (
        "lockstead",
        &[
            "lockstead-api",
            "lockstead-chaos",
            "lockstead-client",
            "lockstead-core",
            "lockstead-raft",
            "lockstead-server",
        ],
    ),
];

/// All that the pure crate is built on.
const CORE_DEPENDENCIES: [&str; 3] = ["bincode", "serde", "thiserror"];

/// What only one crate may name.
const ONLY_IN: [(&str, &str); 3] =
    [("openraft", "lockstead-raft"), ("sled", "lockstead-raft"), ("axum", "lockstead-server")];

/// Exact versions: what they do was measured, or their next version is known to be unfit.
const PINS: [(&str, &str); 3] = [("openraft", "=0.10.0-alpha.37"), ("sled", "=0.34.7"), ("bincode", "=2.0.1")];

/// One of these has to be enough for each dependency.
const LICENCES: [&str; 4] = ["Apache-2.0", "BSD-3-Clause", "MIT", "Unicode-3.0"];

/// An advisory that is known and lived with.
struct Accepted {
    package: &'static str,
    version: &'static str,
    id: &'static str,
    date: &'static str,
    reason: &'static str,
}

const ACCEPTED: [Accepted; 3] = [
    Accepted {
        package: "fxhash",
        version: "0.2.1",
        id: "RUSTSEC-2025-0057",
        date: "2026-11-29",
        reason: "unmaintained; a small, finished hash function inside sled, fed only with sled's own page numbers",
    },
    Accepted {
        package: "instant",
        version: "0.1.13",
        id: "RUSTSEC-2024-0384",
        date: "2026-11-29",
        reason: "unmaintained; on Linux it is std's Instant under another name, used by the locks inside sled",
    },
    Accepted {
        package: "bincode",
        version: "2.0.1",
        id: "RUSTSEC-2025-0141",
        date: "2026-11-29",
        reason: "unmaintained; pinned, its output is held by golden bytes, input from peers is bounded before it",
    },
];

/// What the pure crate must not reach for: time, randomness and I/O are passed in.
const NOT_IN_CORE: [&str; 9] =
    ["std::time", "SystemTime", "Instant", "tokio", "std::fs", "std::net", "std::thread", "rand::", "getrandom"];

/// The most lines of a source file up to its unit tests.
const FILE_LINES_MAX: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What is built on Linux, as `Cargo.lock` says.
fn metadata() -> Metadata {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--locked", "--filter-platform", &platform].map(str::to_owned).to_vec();
    MetadataCommand::new().current_dir(root()).other_options(options).exec().expect("cargo metadata runs")
}

fn dependencies(package: &Package, is_wanted: impl Fn(DependencyKind) -> bool) -> BTreeSet<&str> {
    let wanted = package.dependencies.iter().filter(|dependency| is_wanted(dependency.kind));
    wanted.map(|dependency| dependency.name.as_str()).collect()
}

fn member<'a>(metadata: &'a Metadata, name: &str) -> &'a Package {
    let members = metadata.workspace_packages();
    members.into_iter().find(|package| package.name.as_str() == name).expect("a crate of the workspace")
}

#[test]
fn dependencies_between_the_crates_point_inwards() {
    let metadata = metadata();
    let members = metadata.workspace_packages();
    let names: BTreeSet<&str> = members.iter().map(|package| package.name.as_str()).collect();
    let listed: BTreeSet<&str> = DIRECTIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, listed, "each crate of the workspace has its line in DIRECTIONS");
    for (name, allowed) in DIRECTIONS {
        for dependency in dependencies(member(&metadata, name), |_| true).intersection(&names) {
            assert!(allowed.contains(dependency), "{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn the_pure_crate_is_built_on_three_crates_only() {
    let metadata = metadata();
    let core = dependencies(member(&metadata, "lockstead-core"), |kind| kind != DependencyKind::Development);
    assert_eq!(core, BTreeSet::from(CORE_DEPENDENCIES));
}

#[test]
fn consensus_storage_and_http_are_each_named_by_one_crate() {
    let metadata = metadata();
    for (dependency, home) in ONLY_IN {
        for package in metadata.workspace_packages() {
            let is_named = dependencies(package, |_| true).contains(dependency);
            assert_eq!(is_named, package.name.as_str() == home, "{} and {dependency}", package.name);
        }
    }
}

#[test]
fn pinned_crates_are_pinned_exactly_wherever_they_are_named() {
    let metadata = metadata();
    for (pinned, requirement) in PINS {
        let named = metadata.workspace_packages().into_iter().flat_map(|package| &package.dependencies);
        let requirements: BTreeSet<String> =
            named.filter(|dependency| dependency.name == pinned).map(|dependency| dependency.req.to_string()).collect();
        assert_eq!(requirements, BTreeSet::from([requirement.to_owned()]), "{pinned}");
    }
}

// ---- licences

/// Whether the licences in `allowed` are enough for an SPDX expression. `/` is how older manifests write `OR`.
fn is_enough(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let enough = any_of(&mut words, allowed);
    assert!(words.next().is_none(), "{expression:?} is no licence expression");
    enough
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut enough = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        enough |= all_of(words, allowed);
    }
    enough
}

fn all_of(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut enough = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        enough &= one(words, allowed);
    }
    enough
}

/// An exception (`WITH`) only ever permits more than its licence does.
fn one(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let enough = any_of(words, allowed);
        assert_eq!(words.next(), Some(")"), "a bracket is not closed");
        return enough;
    }
    let licence = words.next().expect("a licence expression ends too early");
    if words.next_if_eq(&"WITH").is_some() {
        words.next().expect("an exception follows WITH");
    }
    allowed.contains(&licence)
}

#[test]
fn a_licence_expression_is_read_as_written() {
    let check = |expression, expected| assert_eq!(is_enough(expression, &["MIT", "Zlib"]), expected, "{expression}");
    check("MIT", true);
    check("GPL-3.0-only", false);
    check("GPL-3.0-only OR MIT", true);
    check("GPL-3.0-only/MIT", true);
    check("GPL-3.0-only AND MIT", false);
    check("MIT AND Zlib", true);
    check("ISC OR MIT AND ISC", false);
    check("(ISC OR MIT) AND Zlib", true);
    check("Apache-2.0 WITH LLVM-exception", false);
    check("Apache-2.0 WITH LLVM-exception OR MIT", true);
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed_and_no_licence_is_allowed_in_vain() {
    let metadata = metadata();
    let used = used_packages(&metadata);
    let refused = |allowed: &[&str]| -> Vec<String> {
        let unfit = used.values().filter(|package| {
            let licence = package.license.as_deref().unwrap_or("none");
            !is_enough(licence, allowed)
        });
        unfit.map(|package| format!("{} {}: {:?}", package.name, package.version, package.license)).collect()
    };
    assert_eq!(refused(&LICENCES), [] as [String; 0], "not allowed");
    for licence in LICENCES {
        let others: Vec<&str> = LICENCES.into_iter().filter(|other| *other != licence).collect();
        assert!(!refused(&others).is_empty(), "no dependency needs {licence}: take it off the list");
    }
}

fn used_packages(metadata: &Metadata) -> BTreeMap<String, &Package> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves");
    let used: BTreeSet<_> = resolve.nodes.iter().map(|node| &node.id).collect();
    let packages = metadata.packages.iter().filter(|package| used.contains(&package.id));
    packages.map(|package| (format!("{} {}", package.name, package.version), package)).collect()
}

// ---- advisories

#[test]
fn every_accepted_advisory_is_still_about_something_that_is_used() {
    let metadata = metadata();
    let used = used_packages(&metadata);
    for Accepted { package, version, id, date, reason } in ACCEPTED {
        assert!(used.contains_key(&format!("{package} {version}")), "{id}: {package} {version} is not used any more");
        assert!(id.starts_with("RUSTSEC-") && date.len() == 10 && !reason.is_empty(), "{id} is not told in full");
    }
}

// ---- source

/// The Rust files below a folder of the repository.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = item.expect("an item of a folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn all_sources() -> Vec<PathBuf> {
    let own = root().join(file!());
    let files = ["src", "crates", "tests"].into_iter().flat_map(sources).filter(|path| *path != own);
    let files: Vec<PathBuf> = files.collect();
    assert!(files.len() > 50, "the source is elsewhere");
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a source file in UTF-8")
}

/// The lines of a file that are no comments, with their numbers.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    numbered.filter(|(_, line)| !line.starts_with("//"))
}

#[test]
fn the_pure_crate_reaches_for_no_clock_no_chance_and_no_device() {
    for path in sources("crates/lockstead-core/src") {
        for (number, line) in code_lines(&read(&path)) {
            for word in NOT_IN_CORE {
                assert!(!line.contains(word), "{}:{number} reaches for {word}", path.display());
            }
        }
    }
}

#[test]
fn no_test_is_ignored_and_no_source_lies_outside_the_repository() {
    for path in all_sources() {
        for (number, line) in code_lines(&read(&path)) {
            let place = format!("{}:{number}", path.display());
            assert!(!line.starts_with("#[ignore"), "{place} ignores a test");
            assert!(!line.starts_with("#[path = \"/"), "{place} takes in a file from outside");
        }
    }
}

#[test]
fn files_stay_short_enough_to_be_read_at_once() {
    for path in all_sources() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.components().any(|part| part.as_os_str() == "tests") || name.ends_with("tests.rs") {
            continue;
        }
        let text = read(&path);
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines before its tests", path.display());
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for package in metadata().workspace_packages() {
        let manifest = read(package.manifest_path.as_std_path());
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} sets lints of its own", package.name);
    }
}
