//! Changes of the membership, and of who leads.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use lockstead_api::{
    AddMemberBody, AddressesBody, ChangeTerms, DEMOTE_PATH, LEADER_PATH, LeaderBody, MEMBER_PATH, MEMBERS_PATH,
    MemberAnswer, PROMOTE_PATH,
};
use serde::Serialize;

use crate::client::{Client, json as answer, read, refused};
use crate::error::CallError;
use crate::exchange::Call;
use crate::outcome::Reply;
use crate::tries::Plan;

/// What is to become of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Take in the node that runs at `peer`, as a learner.
    Add {
        /// Its id, never used before.
        id: u64,
        /// Where peers reach it, `host:port`.
        peer: String,
        /// Where clients reach it, `host:port`.
        api: String,
    },
    /// Reach a member at other addresses.
    Move {
        /// Its id.
        id: u64,
        /// Where peers reach it, `host:port`.
        peer: String,
        /// Where clients reach it, `host:port`.
        api: String,
    },
    /// Let a learner vote.
    Promote(u64),
    /// Make a voter a learner.
    Demote(u64),
    /// End a membership for good.
    Remove(u64),
    /// Hand leadership over; `None`: to whoever is best.
    Lead(Option<u64>),
}

/// On which terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberTerms {
    /// How long to wait for the node to be there, or to catch up; at most 300 s.
    pub wait: Duration,
    /// Only if the membership is still this one: [`MemberAnswer::membership`].
    pub membership: Option<String>,
    /// Do it although the quorum would be lost: the id of the cluster.
    pub force: Option<String>,
}

impl Client {
    /// Changes the membership, or who leads. What has taken effect before is a success that changes nothing, so the
    /// call is repeated until it is decided.
    ///
    /// # Errors
    /// [`CallError`]; a refusal is a [`CallError::BadRequest`], whose code says why.
    pub async fn change_members(
        &self,
        change: &MemberChange,
        terms: &MemberTerms,
    ) -> Result<Reply<MemberAnswer>, CallError> {
        let mut tries = self.tries_for(terms.wait);
        let decided = tries.until_decided(|waited| plan(change, terms, waited)).await?;
        match decided.said.status {
            StatusCode::OK => Ok(Reply { outcome: read(&decided)?, body: decided.said.body }),
            _ => Err(refused(&decided)),
        }
    }
}

/// A later try waits for what is left of the wait.
fn plan(change: &MemberChange, terms: &MemberTerms, waited: Duration) -> Plan {
    let wait = terms.wait.saturating_sub(waited);
    Plan { call: call(change, terms, wait), wait }
}

fn call(change: &MemberChange, asked: &MemberTerms, wait: Duration) -> Call {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let terms = ChangeTerms { wait_ms: Some(wait_ms).filter(|wait_ms| *wait_ms > 0), force: asked.force.clone() };
    let of = |path: &str, id: &u64| path.replace("{id}", &id.to_string());
    let addresses =
        |peer: &String, api: &String| AddressesBody { peer: peer.clone(), api: api.clone(), terms: terms.clone() };
    let (method, path, body) = match change {
        MemberChange::Add { id, peer, api } => {
            (Method::POST, MEMBERS_PATH.to_owned(), json(&AddMemberBody { id: *id, addresses: addresses(peer, api) }))
        }
        MemberChange::Move { id, peer, api } => (Method::PUT, of(MEMBER_PATH, id), json(&addresses(peer, api))),
        MemberChange::Promote(id) => (Method::POST, of(PROMOTE_PATH, id), json(&terms)),
        MemberChange::Demote(id) => (Method::POST, of(DEMOTE_PATH, id), json(&terms)),
        MemberChange::Remove(id) => (Method::DELETE, of(MEMBER_PATH, id), json(&terms)),
        MemberChange::Lead(to) => (Method::POST, LEADER_PATH.to_owned(), json(&LeaderBody { to: *to, terms })),
    };
    let if_match = asked.membership.as_ref().map(|membership| format!("\"{membership}\""));
    Call { method, path, body, if_match, check: answer::<MemberAnswer> }
}

fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: &MemberChange, expected: &str) {
        let terms = MemberTerms { wait: Duration::from_secs(1), membership: Some("3-17".into()), force: None };
        let Call { method, path, body, if_match, .. } = call(change, &terms, terms.wait);
        assert_eq!(format!("{method} {path} {}", String::from_utf8_lossy(&body)), expected);
        assert_eq!(if_match.as_deref(), Some("\"3-17\""));
    }

    #[test]
    fn each_change_is_one_request() {
        let (peer, api) = ("h:1".to_owned(), "h:2".to_owned());
        let add = MemberChange::Add { id: 4, peer: peer.clone(), api: api.clone() };
        check(&add, r#"POST /v1/admin/members {"id":4,"peer":"h:1","api":"h:2","wait_ms":1000}"#);
        let moved = MemberChange::Move { id: 4, peer, api };
        check(&moved, r#"PUT /v1/admin/members/4 {"peer":"h:1","api":"h:2","wait_ms":1000}"#);
        check(&MemberChange::Promote(4), r#"POST /v1/admin/members/4/promote {"wait_ms":1000}"#);
        check(&MemberChange::Demote(4), r#"POST /v1/admin/members/4/demote {"wait_ms":1000}"#);
        check(&MemberChange::Remove(4), r#"DELETE /v1/admin/members/4 {"wait_ms":1000}"#);
        check(&MemberChange::Lead(Some(4)), r#"POST /v1/admin/leader {"to":4,"wait_ms":1000}"#);
        check(&MemberChange::Lead(None), r#"POST /v1/admin/leader {"wait_ms":1000}"#);
    }
}
