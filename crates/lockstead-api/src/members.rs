//! Members: what operators ask for, and what they are told.
//!
//! All of these calls may be repeated: what has taken effect is answered 200 with `"changed": false`.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::error::{ErrorBody, ErrorCode};
use crate::fields::{Value, split};
use crate::{NODE_ID_MAX, WAIT_MS_MAX};

/// The longest address, in bytes: the longest DNS name, a colon, a port.
const ADDRESS_BYTES_MAX: usize = 260;
/// What an address has to be.
const ADDRESS: &str = "host:port, port 1 to 65535, without a scheme, and not 0.0.0.0 or [::], which nobody can dial";

/// The body of `POST /v1/admin/members`: take in the node that runs at `peer`, as a learner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddMemberBody {
    /// Its id, 1 to 2^53 − 1, never used before.
    pub id: u64,
    /// The rest.
    #[serde(flatten)]
    pub addresses: AddressesBody,
}

/// The body of `PUT /v1/admin/members/{id}`: where the member is reached from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddressesBody {
    /// Where peers reach it, `host:port`.
    pub peer: String,
    /// Where clients reach it, `host:port`.
    pub api: String,
    /// The rest.
    #[serde(flatten)]
    pub terms: ChangeTerms,
}

/// The body of `POST /v1/admin/leader`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeaderBody {
    /// Who is to lead; missing or null: whoever is best, but not the one that leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// The rest.
    #[serde(flatten)]
    pub terms: ChangeTerms,
}

/// What every change of the membership may say; the whole body of promote, demote and `DELETE`, which may also be
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeTerms {
    /// How long to wait for the node to be there, or to catch up, in milliseconds: 0 (the default) to 300,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Do it although the quorum would be lost: the id of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<String>,
}

/// What a request asks for, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedTerms {
    /// See [`ChangeTerms::wait_ms`].
    pub wait_ms: u64,
    /// See [`ChangeTerms::force`].
    pub force: Option<u128>,
}

/// Where a member is to be reached, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedAddresses {
    /// Where peers reach it.
    pub peer: String,
    /// Where clients reach it.
    pub api: String,
}

/// 200 of every change of the membership or of who leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAnswer {
    /// The log id of the membership, as in the header `etag`.
    pub membership: String,
    /// This request has changed something; false: it was so already.
    pub changed: bool,
    /// Who leads now.
    pub leader: u64,
    /// What the node added still lacks of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_go: Option<ToGoBody>,
    /// What the operator should know of the new membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// What a node still lacks of the leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToGoBody {
    /// Entries.
    pub entries: u64,
    /// Bytes, estimated from the mean of the log's entries.
    pub bytes: u64,
}

/// Reads the body of `POST /v1/admin/members`.
///
/// # Errors
/// What is wrong, as the body of a 400.
pub fn parse_add_member(body: &[u8]) -> Result<(u64, AskedAddresses, AskedTerms), ErrorBody> {
    let [id, peer, api, wait_ms, force] = split(body, &["id", "peer", "api", "wait_ms", "force"])?;
    let id = id.ok_or_else(no_id).and_then(node_id)?;
    Ok((id, addresses(peer, api)?, terms(wait_ms, force)?))
}

/// Reads the body of `PUT /v1/admin/members/{id}`.
///
/// # Errors
/// What is wrong, as the body of a 400.
pub fn parse_addresses(body: &[u8]) -> Result<(AskedAddresses, AskedTerms), ErrorBody> {
    let [peer, api, wait_ms, force] = split(body, &["peer", "api", "wait_ms", "force"])?;
    Ok((addresses(peer, api)?, terms(wait_ms, force)?))
}

/// Reads the body of `POST /v1/admin/leader`, which may be empty.
///
/// # Errors
/// What is wrong, as the body of a 400.
pub fn parse_leader(body: &[u8]) -> Result<(Option<u64>, AskedTerms), ErrorBody> {
    let [to, wait_ms, force] = split(or_nothing(body), &["to", "wait_ms", "force"])?;
    let to = to.map(|to| whole(to, NODE_ID_MAX).filter(|to| *to > 0).ok_or_else(|| wrong_id("to"))).transpose()?;
    Ok((to, terms(wait_ms, force)?))
}

/// Reads the body of promote, demote and `DELETE`, which may be empty.
///
/// # Errors
/// What is wrong, as the body of a 400.
pub fn parse_terms(body: &[u8]) -> Result<AskedTerms, ErrorBody> {
    let [wait_ms, force] = split(or_nothing(body), &["wait_ms", "force"])?;
    terms(wait_ms, force)
}

/// Reads a node's id in a path.
///
/// # Errors
/// What is wrong, as the body of a 400.
pub fn parse_member_id(segment: &str) -> Result<u64, ErrorBody> {
    let plain = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let id = segment.parse().ok().filter(|id| plain && (1..=NODE_ID_MAX).contains(id));
    id.ok_or_else(|| wrong_id("id"))
}

/// Reads the header `if-match`: one entity tag, as an answer's `etag` has it, or `*` for any.
///
/// # Errors
/// What is wrong, as the body of a 400.
pub fn parse_if_match(header: &str) -> Result<Option<(u64, u64)>, ErrorBody> {
    let refused = || {
        let allowed = "one etag of GET /v1/admin/cluster, quotes included, or *";
        ErrorBody::field(ErrorCode::InvalidField, "if-match", allowed)
    };
    let header = header.trim();
    if header == "*" {
        return Ok(None);
    }
    let tag = header.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(refused)?;
    let (term, index) = tag.split_once('-').ok_or_else(refused)?;
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten()
    };
    Ok(Some((number(term).ok_or_else(refused)?, number(index).ok_or_else(refused)?)))
}

fn or_nothing(body: &[u8]) -> &[u8] {
    if body.trim_ascii().is_empty() { b"{}" } else { body }
}

fn no_id() -> ErrorBody {
    ErrorBody::field(ErrorCode::InvalidField, "id", "given (required)")
}

fn wrong_id(field: &str) -> ErrorBody {
    ErrorBody::field(ErrorCode::InvalidField, field, format!("an integer from 1 to {NODE_ID_MAX}"))
}

fn node_id(id: Value<'_>) -> Result<u64, ErrorBody> {
    whole(id, NODE_ID_MAX).filter(|id| *id > 0).ok_or_else(|| wrong_id("id"))
}

fn whole(value: Value<'_>, max: u64) -> Option<u64> {
    value.integer().and_then(|number| u64::try_from(number).ok()).filter(|number| *number <= max)
}

fn addresses(peer: Option<Value<'_>>, api: Option<Value<'_>>) -> Result<AskedAddresses, ErrorBody> {
    let (peer, api) = (address("peer", peer)?, address("api", api)?);
    if peer == api {
        return Err(ErrorBody::field(ErrorCode::InvalidField, "api", "another address than peer"));
    }
    Ok(AskedAddresses { peer, api })
}

fn address(field: &str, value: Option<Value<'_>>) -> Result<String, ErrorBody> {
    let refused = |allowed| ErrorBody::field(ErrorCode::InvalidField, field, allowed);
    let text = value.ok_or_else(|| refused("given (required)"))?.text();
    let text = text.filter(|text| text.len() <= ADDRESS_BYTES_MAX && is_address(text));
    text.map(std::borrow::Cow::into_owned).ok_or_else(|| refused(ADDRESS))
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_fits = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    };
    let host_fits = host_fits && !is_every_address(host);
    host_fits && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Whether a host, as it stands in an address, means every address of a machine (`0.0.0.0`, `[::]`): one may listen
/// there, and nobody can dial it.
#[must_use]
pub fn is_every_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    inner.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_unspecified())
}

fn terms(wait_ms: Option<Value<'_>>, force: Option<Value<'_>>) -> Result<AskedTerms, ErrorBody> {
    let wrong_wait = || {
        let allowed = format!("an integer from 0 to {WAIT_MS_MAX} (milliseconds)");
        ErrorBody::field(ErrorCode::InvalidWait, "wait_ms", allowed)
    };
    let wait_ms = wait_ms.map(|value| whole(value, WAIT_MS_MAX).ok_or_else(wrong_wait)).transpose()?.unwrap_or(0);
    Ok(AskedTerms { wait_ms, force: force.map(cluster_id).transpose()? })
}

fn cluster_id(value: Value<'_>) -> Result<u128, ErrorBody> {
    let text = value.text().filter(|text| text.len() == 32 && !text.starts_with('+'));
    let id = text.and_then(|text| u128::from_str_radix(&text, 16).ok());
    id.ok_or_else(|| ErrorBody::field(ErrorCode::InvalidField, "force", "the id of the cluster, 32 hex digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &str) {
        let outcome = match parse_add_member(body.as_bytes()) {
            Ok(_) => "ok".to_owned(),
            Err(body) => format!("{} {}", body.error.code, body.error.field.unwrap_or_default()),
        };
        assert_eq!(outcome.trim_end(), expected, "{body}");
    }

    #[test]
    fn a_new_member_is_read_field_by_field() {
        let full = r#"{"id":4,"peer":"h4:7501","api":"10.0.0.4:7401","wait_ms":5000,"force":"000102030405060708090a0b0c0d0e0f"}"#;
        let (id, addresses, terms) = parse_add_member(full.as_bytes()).unwrap();
        assert_eq!((id, addresses.peer.as_str(), addresses.api.as_str()), (4, "h4:7501", "10.0.0.4:7401"));
        assert_eq!((terms.wait_ms, terms.force), (5_000, Some(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)));
    }

    #[test]
    fn what_is_wrong_with_a_new_member_is_named() {
        check(r#"{"id":4,"peer":"h:1","api":"[::1]:2"}"#, "ok");
        check(r#"{"peer":"h:1","api":"h:2"}"#, "invalid_field id");
        for id in ["0", "-1", "1.0", "\"4\"", "9007199254740992", "[]"] {
            check(&format!(r#"{{"id":{id},"peer":"h:1","api":"h:2"}}"#), "invalid_field id");
        }
        check(r#"{"id":4,"api":"h:2"}"#, "invalid_field peer");
        for peer in ["7", "\"\"", "\"h\"", "\"h:0\"", "\"h:65536\"", "\"h:+1\"", "\"h :1\"", "\"http://h:1\"", "\":1\""]
        {
            check(&format!(r#"{{"id":4,"peer":{peer},"api":"h:2"}}"#), "invalid_field peer");
        }
        for everywhere in ["0.0.0.0:1", "[::]:1", "[0:0::0]:1", "[::ffff:0.0.0.0]:1"] {
            check(&format!(r#"{{"id":4,"peer":"{everywhere}","api":"h:2"}}"#), "invalid_field peer");
            check(&format!(r#"{{"id":4,"peer":"h:1","api":"{everywhere}"}}"#), "invalid_field api");
        }
        check(r#"{"id":4,"peer":"h:1","api":"h:1"}"#, "invalid_field api");
        check(r#"{"id":4,"peer":"h:1","api":"h:2","wait_ms":300001}"#, "invalid_wait wait_ms");
        check(r#"{"id":4,"peer":"h:1","api":"h:2","force":"yes"}"#, "invalid_field force");
        check(r#"{"id":4,"peer":"h:1","api":"h:2","role":"voter"}"#, "invalid_field role");
        check("", "invalid_json");
    }

    #[test]
    fn what_an_address_has_to_be_stands_in_the_refusal() {
        for peer in ["h:70000", "http://h:1", "0.0.0.0:1"] {
            let refused = parse_addresses(format!(r#"{{"peer":"{peer}","api":"h:2"}}"#).as_bytes()).unwrap_err();
            let message = refused.error.message;
            assert!(message.starts_with("peer must be host:port, port 1 to 65535"), "{message}");
        }
    }

    #[test]
    fn promote_demote_delete_and_transfer_need_no_body() {
        for body in [&b""[..], b" \n", b"{}"] {
            assert_eq!(parse_terms(body), Ok(AskedTerms { wait_ms: 0, force: None }));
            assert_eq!(parse_leader(body).unwrap().0, None);
        }
        assert_eq!(parse_leader(br#"{"to":null}"#).unwrap().0, None);
        assert_eq!(parse_leader(br#"{"to":3,"wait_ms":1}"#), Ok((Some(3), AskedTerms { wait_ms: 1, force: None })));
        assert_eq!(parse_leader(br#"{"to":0}"#).unwrap_err().error.field.as_deref(), Some("to"));
        assert_eq!(parse_terms(br#"{"to":3}"#).unwrap_err().error.code, ErrorCode::InvalidField);
    }

    #[test]
    fn an_id_in_a_path_is_a_plain_number() {
        assert_eq!(parse_member_id("4"), Ok(4));
        for segment in ["", "0", "+4", "-4", "4.0", "four", "%34", "9007199254740992"] {
            assert_eq!(parse_member_id(segment).unwrap_err().error.field.as_deref(), Some("id"), "{segment}");
        }
    }

    #[test]
    fn if_match_is_one_strong_etag_or_any() {
        assert_eq!(parse_if_match("\"3-17\""), Ok(Some((3, 17))));
        assert_eq!(parse_if_match(" * "), Ok(None));
        for header in ["", "3-17", "W/\"3-17\"", "\"3-17\", \"3-18\"", "\"3\"", "\"3-\"", "\"-1-2\"", "\"+3-17\""] {
            assert_eq!(parse_if_match(header).unwrap_err().error.field.as_deref(), Some("if-match"), "{header}");
        }
    }

    #[test]
    fn what_a_client_writes_is_what_the_server_reads() {
        let terms = ChangeTerms { wait_ms: Some(7), force: None };
        let addresses = AddressesBody { peer: "h:1".into(), api: "h:2".into(), terms: terms.clone() };
        let add = AddMemberBody { id: 4, addresses: addresses.clone() };
        let (id, read, asked) = parse_add_member(&serde_json::to_vec(&add).unwrap()).unwrap();
        assert_eq!((id, read.api.as_str(), asked.wait_ms), (4, "h:2", 7));
        assert_eq!(parse_addresses(&serde_json::to_vec(&addresses).unwrap()).unwrap().0.peer, "h:1");
        let leader = LeaderBody { to: Some(2), terms };
        assert_eq!(parse_leader(&serde_json::to_vec(&leader).unwrap()).unwrap().0, Some(2));
    }
}
