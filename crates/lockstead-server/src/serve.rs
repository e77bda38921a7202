//! Accepts connections until told to stop.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::ServerConfig;
use crate::connection;
use crate::connections::Connections;
use crate::node::Node;
use crate::service::{HttpService, Shared};

/// How long to wait after a failed accept: without it a lack of file descriptors would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Serves the HTTP interface of `node` on `listener` until `shutdown` is cancelled, then drains: nothing more is
/// accepted, idle connections are closed, requests in flight may go on for [`ServerConfig::drain_grace`] and are
/// answered `outcome_unknown` after it. Returns when every connection has ended, at most about a second after that.
///
/// The listener may be bound to any address; this function does not ask whether the callers are trusted.
///
/// # Errors
/// When the listener can't be used at all. A failure to accept is none: it is waited out and logged.
pub async fn serve<N: Node>(
    listener: TcpListener,
    node: N,
    config: ServerConfig,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let shared = Arc::new(Shared::new(node, config));
    let gauge = shared.http_metrics.connections().clone();
    let connections = Arc::new(Connections::new(shared.config.connections_max, gauge, shutdown.clone()));
    let acceptor = Acceptor { service: HttpService::new(shared), connections, tracker: TaskTracker::new(), shutdown };
    info!(%address, "serving HTTP");
    acceptor.shutdown.run_until_cancelled(acceptor.accept_all(&listener)).await;
    drop(listener);
    acceptor.tracker.close();
    acceptor.tracker.wait().await;
    Ok(())
}

struct Acceptor<N> {
    service: HttpService<N>,
    connections: Arc<Connections>,
    tracker: TaskTracker,
    shutdown: CancellationToken,
}

impl<N: Node> Acceptor<N> {
    async fn accept_all(&self, listener: &TcpListener) {
        let mut failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    failing = false;
                    // Only now: room is made for a connection that is there, not for one that may come.
                    let slot = self.connections.slot().await;
                    self.start(stream, slot);
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        warn!(%error, "can't accept connections; trying again until it works");
                    }
                    self.connections.close_longest_free();
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        // Only costs latency if it fails, and it fails only if the connection is gone already.
        let _gone = stream.set_nodelay(true);
        let member = self.connections.add(slot);
        let (service, shutdown) = (self.service.clone(), self.shutdown.clone());
        self.tracker.spawn(async move {
            connection::run(stream, service, Arc::clone(&member.activity), member.close.clone(), shutdown).await;
        });
    }
}

/// The connection failed before it was accepted; the listener is well.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
