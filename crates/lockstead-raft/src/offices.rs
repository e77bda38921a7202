//! One office after another.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::node::stop;
use crate::office::{Ground, Mailbox, Office, OfficeEnd};
use crate::platform::Platform;
use crate::replica::StopReason;
use crate::router::OfficeDoor;
use crate::term::Term;

/// The most letters that lie before an office; beyond it senders wait.
const LETTERS_MAX: usize = 16_384;

/// Opens an office in each term in which this node leads.
pub(crate) struct Offices<P: Platform> {
    ground: Arc<Ground<P>>,
    door: watch::Sender<Option<OfficeDoor>>,
    stop_reason: watch::Sender<Option<StopReason>>,
}

impl<P: Platform> Offices<P> {
    pub(crate) fn new(
        ground: Ground<P>,
        stop_reason: watch::Sender<Option<StopReason>>,
    ) -> (Self, watch::Receiver<Option<OfficeDoor>>) {
        let (door, office) = watch::channel(None);
        (Self { ground: Arc::new(ground), door, stop_reason }, office)
    }

    /// Runs until `stopping`.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = self.one_after_another() => {}
        }
    }

    async fn one_after_another(&self) {
        let mut last_term = 0;
        while let Some(term) = Term::begun_after(&self.ground.raft, last_term).await {
            last_term = term.number();
            if let OfficeEnd::Fatal(why) = self.serve(term).await {
                stop(&self.stop_reason, StopReason::Fatal(why));
                return;
            }
        }
    }

    /// Nobody gets a lock for a while after a restore or a recovery; that must not look like a fault.
    fn announce_hold_off(&self) {
        let hold_off_ms = self.ground.machine.with(|state| state.table.no_grant_before().ms_since(state.table.time()));
        if hold_off_ms > 0 {
            tracing::warn!(hold_off_ms, "nothing is granted yet: holders from before may still count on their locks");
        }
    }

    async fn serve(&self, term: Term) -> OfficeEnd {
        let (letters_in, letters) = mpsc::channel(LETTERS_MAX);
        let (notes_in, notes) = mpsc::unbounded_channel();
        let number = term.number();
        let mut office = match Office::open(Arc::clone(&self.ground), term, Mailbox { letters, notes }).await {
            Ok(office) => office,
            Err(end) => return end,
        };
        tracing::info!(term = number, "took office");
        self.announce_hold_off();
        self.door.send_replace(Some(OfficeDoor { term: number, letters: letters_in, notes: notes_in }));
        let end = office.serve().await;
        self.door.send_replace(None);
        office.close();
        tracing::info!(term = number, ?end, "left office");
        end
    }
}
