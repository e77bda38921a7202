//! Endpoints that do not belong together, or are no nodes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;

use tempfile::TempDir;

use crate::harness::api::Api;
use crate::harness::clock::{eventually, now, secs};
use crate::harness::cluster::Cluster;
use crate::harness::node::Node;
use crate::harness::ports::free_address;
use crate::run::{lockstead, run};

/// A node that is a cluster of its own.
fn another_cluster(home: &TempDir) -> Node {
    let (api, peer) = (free_address(), free_address());
    let args = ["serve", "--node-id", "1", "--bootstrap", "--listen", &api.to_string()];
    let args = args.iter().map(ToString::to_string).chain(["--peer-listen".to_owned(), peer.to_string()]).collect();
    let mut node = Node::new(1, api, home.path(), args);
    node.start();
    eventually("it serves", secs(20), || node.api().is_ready().then_some(()));
    node
}

/// A web server that has none of our pages; it ends with the test.
fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _request = stream.read(&mut [0; 4_096]);
            let _sent =
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>");
        }
    });
    address
}

#[test]
fn a_wait_goes_on_in_no_other_cluster_than_the_one_it_began_in() {
    let mut cluster = Cluster::start(1);
    let home = TempDir::new().unwrap();
    let other = another_cluster(&home);
    run(&cluster.apis(), &["acquire", "L", "--ttl", "5m"]).must_exit(0);
    let mut command = lockstead(&[cluster.api(1), other.api()], &["acquire", "L", "--wait", "2m"]);
    let waiter = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cluster.wait_until_waiting(1);
    cluster.node(1).kill();
    let output = waiter.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{output:?}");
    assert!(stderr.contains(&other.api_address.to_string()) && stderr.contains("belongs to cluster"), "{stderr}");
    other.api().get("L").unwrap().must_be(404, "not_held");
}

#[test]
fn what_is_no_node_is_passed_over_and_named_if_there_is_nothing_else() {
    let cluster = Cluster::start(1);
    let web = Api::at(web_server());
    for (args, code) in [(&["status"][..], 0), (&["member", "list"], 0), (&["get", "L"], 1), (&["acquire", "L"], 0)] {
        run(&[Api::at(web.address), cluster.api(1)], args).must_exit(code);
        let begin = now();
        let ran = run(&[Api::at(web.address)], args).must_exit(69);
        assert!(ran.stderr.contains("does not answer like a lockstead node"), "{ran:?}");
        assert!(begin.elapsed() < secs(8), "there is nothing to wait for: {:?}", begin.elapsed());
    }
}
