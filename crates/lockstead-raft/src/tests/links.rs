//! Links between the nodes of a test that can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes one node's traffic to another's peer port while it is open.
#[derive(Clone)]
pub(super) struct Link {
    open: Arc<watch::Sender<bool>>,
    pub(super) address: String,
    target_port: Arc<AtomicU64>,
}

impl Link {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let link = Self { open: Arc::new(watch::Sender::new(true)), address, target_port: Arc::default() };
        tokio::spawn(link.clone().run(listener));
        link
    }

    pub(super) fn aim_at(&self, port: u16) {
        self.target_port.store(port.into(), Ordering::SeqCst);
    }

    /// A closed link drops its connections and takes no new ones.
    pub(super) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    async fn run(self, listener: TcpListener) {
        loop {
            let Ok((near, _)) = listener.accept().await else { return };
            if *self.open.borrow() {
                tokio::spawn(self.clone().pass(near));
            }
        }
    }

    async fn pass(self, mut near: TcpStream) {
        let port = self.target_port.load(Ordering::SeqCst);
        let Ok(mut far) = TcpStream::connect(format!("127.0.0.1:{port}")).await else { return };
        let mut open = self.open.subscribe();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = open.wait_for(|open| !open) => {}
        }
    }
}
