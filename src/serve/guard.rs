//! What ends the process when it must not go on.

use std::future::Future;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lockstead_raft::OpenError;

use crate::exit::{Exit, say};

/// The data directory that is being opened: the storage engine panics there over damaged files.
static OPENING: Mutex<Option<PathBuf>> = Mutex::new(None);

/// A panic in any thread ends the whole process: a node that is wrong stops whole.
pub(crate) fn end_process_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let what = panic.payload_as_str().unwrap_or("panic without a message");
        let (exit, line) = last_words(what, panic.location(), opening.as_deref());
        say(&line);
        exit.now()
    }));
}

/// Opens the data directory, with panics counted as damage to it.
pub(crate) async fn while_opening<T>(data_dir: &Path, open: impl Future<Output = T>) -> T {
    let set = |opening| *OPENING.lock().unwrap_or_else(PoisonError::into_inner) = opening;
    set(Some(data_dir.to_owned()));
    let opened = open.await;
    set(None);
    opened
}

fn last_words(what: &str, place: Option<&Location<'_>>, opening: Option<&Path>) -> (Exit, String) {
    let place = place.map(|place| (place.file(), place.line()));
    let shown = place.map(|(file, line)| format!(" ({}:{line})", below_sources(file))).unwrap_or_default();
    let Some(data_dir) = opening else {
        return (Exit::Internal, format!("internal error, the node stops: {what}{shown}"));
    };
    // What sled says then is the inside of a value of its own.
    let is_sled = place.is_some_and(|(file, _)| below_sources(file).starts_with("sled-"));
    let why = if is_sled { format!("sled cannot read the log{shown}") } else { format!("{what}{shown}") };
    (Exit::Damage, OpenError::Damaged { file: data_dir.to_owned(), why }.to_string())
}

/// A source file without the place where the machine that built this keeps it.
fn below_sources(file: &str) -> &str {
    let crate_at = file.rfind("/src/").and_then(|src| file[..src].rfind('/'));
    crate_at.map_or(file, |at| &file[at + 1..])
}

/// A development cluster's nodes end with their parent, also if that is killed.
pub(super) fn end_with_parent_if_asked() {
    if std::env::var_os("LOCKSTEAD_EXIT_WITH_PARENT").is_some_and(|value| value == "1") {
        end_with_parent();
    }
}

#[cfg(target_os = "linux")]
fn end_with_parent() {
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM)) {
        tracing::warn!(%error, "this node may outlive its parent");
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_opening_names_the_directory_and_the_way_out() {
        let (exit, line) = last_words("the log is not a log", Some(Location::caller()), Some(Path::new("d1")));
        assert_eq!(exit, Exit::Damage);
        assert!(line.starts_with("d1 is damaged: the log is not a log (src/serve/guard.rs:"), "{line}");
        assert!(line.contains("The way out"), "{line}");
        let (exit, line) = last_words("w", None, None);
        assert_eq!((exit, line.as_str()), (Exit::Internal, "internal error, the node stops: w"));
    }

    #[test]
    fn a_source_file_is_named_by_its_crate() {
        assert_eq!(below_sources("/h/registry/src/x-1/sled-0.34.7/src/db.rs"), "sled-0.34.7/src/db.rs");
        assert_eq!(below_sources("src/serve/guard.rs"), "src/serve/guard.rs");
    }
}
