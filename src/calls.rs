//! What the commands that call a cluster have in common.

use std::future::Future;
use std::io;

use lockstead_client::{CallError, Client, ClientConfig};

use crate::args::Reach;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::{logging, text};

/// A client of the endpoints given.
pub(crate) fn client(reach: &Reach) -> Client {
    Client::new(reach.endpoints.clone(), ClientConfig { timeout: reach.timeout })
}

/// Runs a command on a runtime of one thread.
pub(crate) fn block_on(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    logging::start_for_a_call();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error))?;
    let exit = runtime.block_on(command);
    // A name look-up may still block a thread; nobody waits for it.
    runtime.shutdown_background();
    exit
}

/// A call, unless a signal comes first: then the call is dropped, which withdraws it.
pub(crate) async fn until_signal<T, E: Into<Failure>>(call: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
    let mut signals = Signals::catch()?;
    tokio::select! {
        biased;
        outcome = call => outcome.map_err(Into::into),
        exit = signals.next() => Err(Failure::new(exit, "ended by a signal")),
    }
}

/// With `--json`, prints the API's answer as it came, also if it is a refusal of the request itself.
pub(crate) fn print_refusal(error: CallError, reach: &Reach) -> CallError {
    match &error {
        CallError::BadRequest(refusal) if reach.json => {
            // The exit code says it as well.
            let _unheard = text::print_line(&refusal.raw);
        }
        _ => {}
    }
    error
}

/// Prints an answer. A reader that went away is no fault: the shell sees what SIGPIPE would have shown it.
pub(crate) fn print(answer: &[u8]) -> Result<(), Failure> {
    text::print_line(answer).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::Signal(13), "nobody reads the answer"),
        _ => Failure::new(Exit::Internal, format!("the answer cannot be printed: {error}")),
    })
}
