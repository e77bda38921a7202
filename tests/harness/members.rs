//! The membership, as an operator changes it.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::api::Api;
use super::clock::{eventually, ms, secs};
use super::cluster::Cluster;
use super::http::{Answer, Conn};
use super::locker::insist;
use super::node::Node;
use super::ports::free_address;

impl Api {
    /// A call about the membership; the body goes as it is, `null` for none.
    pub(crate) fn membership(&self, method: &str, path: &str, body: &Value) -> io::Result<Answer> {
        self.membership_if(None, method, path, body)
    }

    /// As [`Self::membership`], only if the membership is still the one of this `etag`.
    pub(crate) fn membership_if(
        &self,
        etag: Option<&str>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> io::Result<Answer> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: lockstead\r\ncontent-length: {}\r\n", text.len());
        if !text.is_empty() {
            head.push_str("content-type: application/json\r\n");
        }
        if let Some(etag) = etag {
            let _infallible = write!(head, "if-match: {etag}\r\n");
        }
        let wait = ms(body["wait_ms"].as_u64().unwrap_or(0));
        Conn::open(self.address)?.call(format!("{head}\r\n{text}").as_bytes(), wait + self.patience())
    }

    pub(crate) fn add_member(&self, node: &Node) -> io::Result<Answer> {
        let body = json!({"id": node.id, "peer": node.peer_address(), "api": node.api_address, "wait_ms": 20_000});
        self.membership("POST", "/v1/admin/members", &body)
    }

    pub(crate) fn promote(&self, id: u64) -> io::Result<Answer> {
        self.membership("POST", &format!("/v1/admin/members/{id}/promote"), &json!({"wait_ms": 20_000}))
    }

    pub(crate) fn demote(&self, id: u64) -> io::Result<Answer> {
        self.membership("POST", &format!("/v1/admin/members/{id}/demote"), &Value::Null)
    }

    pub(crate) fn remove(&self, id: u64) -> io::Result<Answer> {
        self.membership("DELETE", &format!("/v1/admin/members/{id}"), &Value::Null)
    }

    pub(crate) fn transfer(&self, to: Option<u64>) -> io::Result<Answer> {
        self.membership("POST", "/v1/admin/leader", &json!({"to": to}))
    }

    /// The role of a node, as this one sees it; `None` if it is no member.
    pub(crate) fn role_of(&self, id: u64) -> Option<String> {
        let view = self.cluster().ok()?;
        let member = view.body["members"].as_array()?.iter().find(|member| member["id"] == id)?.clone();
        Some(member["role"].as_str()?.to_owned())
    }
}

impl Cluster {
    /// An id that no node of this cluster had.
    fn next_id(&self) -> u64 {
        let used = |id: &u64| self.home.path().join(format!("node-{id}.log")).exists();
        (1..1_000).find(|id| !used(id)).expect("no test has so many nodes")
    }

    fn start_at(&self, id: u64, (api, peer): (SocketAddr, SocketAddr), more: &[&str]) -> Node {
        let mut args: Vec<String> = vec!["serve".into(), "--node-id".into(), id.to_string()];
        args.extend(["--listen".into(), api.to_string(), "--peer-listen".into(), peer.to_string()]);
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args.extend(self.args.iter().cloned());
        let mut node = Node::new(id, api, self.home.path(), args);
        node.start();
        node
    }

    /// A further node on an empty directory waits to be added; returns its id.
    pub(crate) fn start_standby(&mut self) -> u64 {
        let id = self.next_id();
        let node = self.start_at(id, (free_address(), free_address()), &["--standby"]);
        self.nodes.insert(id, node);
        id
    }

    /// A node that founds another cluster.
    pub(crate) fn found_beside(&self) -> Node {
        let node = self.start_at(self.next_id(), (free_address(), free_address()), &["--bootstrap"]);
        eventually("the other cluster is there", secs(30), || node.api().is_ready().then_some(()));
        node
    }

    /// A node goes on with its directory at other addresses.
    pub(crate) fn restart_at(&mut self, id: u64, api: SocketAddr, peer: SocketAddr) {
        drop(self.nodes.remove(&id));
        let node = self.start_at(id, (api, peer), &[]);
        self.nodes.insert(id, node);
    }

    /// A node goes on with its directory and at its addresses, with other options.
    pub(crate) fn restart_as(&mut self, id: u64, more: &[&str]) {
        let old = self.nodes.remove(&id).expect("a node of the cluster");
        let (api, peer) = (old.api_address, old.peer_address().parse().expect("an address"));
        drop(old);
        let node = self.start_at(id, (api, peer), more);
        self.nodes.insert(id, node);
    }

    /// A node that waits is added and given its vote, as an operator does it.
    pub(crate) fn grow(&mut self) -> u64 {
        let id = self.start_standby();
        let apis = self.apis_without(id);
        let node = &self.nodes[&id];
        insist(&apis, secs(30), |api| api.add_member(node)).must_be_ok();
        insist(&apis, secs(30), |api| api.promote(id)).must_be_ok();
        id
    }

    /// A node is removed, ends by itself, and is forgotten here.
    pub(crate) fn shrink(&mut self, id: u64) {
        let apis = self.apis_without(id);
        insist(&apis, secs(30), |api| api.remove(id)).must_be_ok();
        let status = self.node(id).wait_for_exit(secs(20));
        assert_eq!(status.code(), Some(12), "{}", self.node(id).output());
        drop(self.nodes.remove(&id));
    }
}
