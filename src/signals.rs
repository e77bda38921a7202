//! Signals that end the process in good order.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// SIGINT and SIGTERM, caught from the moment this is made.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Internal, format!("signals cannot be caught: {error}")))
        };
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// Waits for the next signal; the end that it asks for.
    pub(crate) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Signal(2),
            _ = self.terminate.recv() => Exit::Signal(15),
        }
    }

    /// Ends the process at the next signal, whatever it is doing.
    pub(crate) fn end_at_next(mut self) {
        tokio::spawn(async move { self.next().await.now() });
    }
}
