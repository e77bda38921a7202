//! Where each node of the development cluster lives.

use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use lockstead_client::Endpoint;
use tempfile::TempDir;
use tokio::process::Child;

use super::child;
use crate::args::DevArgs;
use crate::exit::{Exit, Failure};

const PEER_PORT_OFFSET: u16 = 100;

/// Directories, ports, addresses.
pub(super) struct Layout {
    nodes: u16,
    port: u16,
    data_dir: PathBuf,
    temporary: Mutex<Option<TempDir>>,
    program: PathBuf,
    endpoints: Vec<Endpoint>,
}

impl Layout {
    pub(super) fn new(args: &DevArgs) -> Result<Self, Failure> {
        let nodes = 1..=args.nodes;
        nodes.clone().flat_map(|node| ports(args.port, node)).try_for_each(check_free)?;
        let temporary = temporary(args.data_dir.as_deref())?;
        let data_dir = match (&args.data_dir, &temporary) {
            (None, Some(temporary)) => temporary.path().to_owned(),
            (said, _) => std::path::absolute(said.clone().unwrap_or_default()).map_err(|error| no_directory(&error))?,
        };
        let program = std::env::current_exe();
        let program = program.map_err(|error| Failure::new(Exit::Internal, format!("this program: {error}")))?;
        let endpoints = nodes.map(|node| endpoint(args.port, node)).collect::<Result<_, _>>()?;
        Ok(Self { nodes: args.nodes, port: args.port, data_dir, temporary: Mutex::new(temporary), program, endpoints })
    }

    pub(super) fn nodes(&self) -> RangeInclusive<u16> {
        1..=self.nodes
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Starts the process of a node.
    pub(super) fn start(&self, node: u16) -> Result<Child, Failure> {
        let started = child::start(&self.program, &self.arguments(node));
        started.map_err(|error| Failure::new(Exit::Internal, format!("node {node} cannot be started: {error}")))
    }

    /// The command line of a node: the first founds the cluster, the others join it. A restart is the same line.
    fn arguments(&self, node: u16) -> Vec<String> {
        let [port, peer_port] = ports(self.port, node);
        let data_dir = self.data_dir.join(format!("node-{node}"));
        let others = self.nodes().filter(|other| *other != node);
        let join: Vec<_> = others.map(|other| address(ports(self.port, other)[0])).collect();
        let mut arguments = vec!["serve".to_owned()];
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        add("--node-id", node.to_string());
        add("--data-dir", data_dir.display().to_string());
        add("--listen", address(port));
        add("--peer-listen", address(peer_port));
        if !join.is_empty() {
            add("--join", join.join(","));
        }
        if node == 1 {
            arguments.push("--bootstrap".to_owned());
        }
        arguments
    }

    pub(super) fn remove_if_temporary(&self) {
        let temporary = self.temporary.lock().ok().and_then(|mut temporary| temporary.take());
        if let Some(Err(error)) = temporary.map(TempDir::close) {
            super::print(&format!("{} cannot be removed: {error}", self.data_dir.display()));
        }
    }
}

fn temporary(said: Option<&Path>) -> Result<Option<TempDir>, Failure> {
    match said {
        Some(said) => std::fs::create_dir_all(said).map(|()| None),
        None => tempfile::Builder::new().prefix("lockstead-dev-").tempdir().map(Some),
    }
    .map_err(|error| no_directory(&error))
}

fn no_directory(error: &std::io::Error) -> Failure {
    Failure::usage(format!("the data directory cannot be made: {error}"))
}

/// The ports of a node, for clients and for peers.
fn ports(first: u16, node: u16) -> [u16; 2] {
    let port = first + node - 1;
    [port, port + PEER_PORT_OFFSET]
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn endpoint(first: u16, node: u16) -> Result<Endpoint, Failure> {
    address(ports(first, node)[0]).parse().map_err(Failure::usage)
}

fn check_free(port: u16) -> Result<(), Failure> {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::usage(format!("port {port} cannot be used: {error}; choose others with --port"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(nodes: u16) -> Layout {
        let (data_dir, temporary) = (PathBuf::from("/d"), Mutex::new(None));
        Layout { nodes, port: 7401, data_dir, temporary, program: PathBuf::new(), endpoints: Vec::new() }
    }

    #[test]
    fn the_first_node_founds_and_the_others_join() {
        let layout = layout(3);
        assert_eq!(
            layout.arguments(1).join(" "),
            "serve --node-id 1 --data-dir /d/node-1 --listen 127.0.0.1:7401 --peer-listen 127.0.0.1:7501 \
             --join 127.0.0.1:7402,127.0.0.1:7403 --bootstrap"
        );
        assert_eq!(
            layout.arguments(3).join(" "),
            "serve --node-id 3 --data-dir /d/node-3 --listen 127.0.0.1:7403 --peer-listen 127.0.0.1:7503 \
             --join 127.0.0.1:7401,127.0.0.1:7402"
        );
    }

    #[test]
    fn a_cluster_of_one_asks_nobody() {
        assert!(layout(1).arguments(1).ends_with(&["127.0.0.1:7501".to_owned(), "--bootstrap".to_owned()]));
    }

    #[test]
    fn a_port_in_use_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let failure = check_free(port).unwrap_err();
        assert!(failure.message.contains(&port.to_string()) && failure.exit == Exit::Usage);
    }
}
