//! Links between the nodes of a test that can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What a link does with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// They pass.
    Open,
    /// They end, and none comes about.
    Closed,
    /// New ones come about, and nothing passes; old ones end.
    Silent,
}

/// Passes one node's traffic to another's peer port while it is open.
#[derive(Clone)]
pub(super) struct Link {
    gate: Arc<watch::Sender<Gate>>,
    pub(super) address: String,
    target_port: Arc<AtomicU64>,
}

impl Link {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Arc::new(watch::Sender::new(Gate::Open));
        let link = Self { gate, address, target_port: Arc::default() };
        tokio::spawn(link.clone().run(listener));
        link
    }

    pub(super) fn aim_at(&self, port: u16) {
        self.target_port.store(port.into(), Ordering::SeqCst);
    }

    pub(super) fn set(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

    async fn run(self, listener: TcpListener) {
        loop {
            let Ok((near, _)) = listener.accept().await else { return };
            let gate = *self.gate.borrow();
            match gate {
                Gate::Open => drop(tokio::spawn(self.clone().pass(near))),
                Gate::Closed => {}
                Gate::Silent => drop(tokio::spawn(self.clone().hold(near))),
            }
        }
    }

    async fn hold(self, _near: TcpStream) {
        let mut gate = self.gate.subscribe();
        let _the_test_is_over = gate.wait_for(|gate| *gate != Gate::Silent).await;
    }

    async fn pass(self, mut near: TcpStream) {
        let port = self.target_port.load(Ordering::SeqCst);
        let Ok(mut far) = TcpStream::connect(format!("127.0.0.1:{port}")).await else { return };
        let mut gate = self.gate.subscribe();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = gate.wait_for(|gate| *gate != Gate::Open) => {}
        }
    }
}
