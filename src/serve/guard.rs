//! What ends the process when it must not go on.

use std::future::Future;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{Exit, say};

/// The data directory is being opened: the storage engine panics there over damaged files.
static OPENING: AtomicBool = AtomicBool::new(false);

/// A panic in any thread ends the whole process: a node that is wrong stops whole.
pub(crate) fn end_process_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let (exit, line) = last_words(panic, OPENING.load(Ordering::SeqCst));
        say(&line);
        exit.now()
    }));
}

/// Opens the data directory, with panics counted as damage to it.
pub(crate) async fn while_opening<T>(open: impl Future<Output = T>) -> T {
    OPENING.store(true, Ordering::SeqCst);
    let opened = open.await;
    OPENING.store(false, Ordering::SeqCst);
    opened
}

fn last_words(panic: &PanicHookInfo<'_>, opening: bool) -> (Exit, String) {
    let what = panic.payload_as_str().unwrap_or("panic without a message");
    let place = panic.location().map(|place| format!(" ({}:{})", place.file(), place.line())).unwrap_or_default();
    if opening {
        (Exit::Damage, format!("the data directory cannot be opened, its files are damaged: {what}{place}"))
    } else {
        (Exit::Internal, format!("internal error, the node stops: {what}{place}"))
    }
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
