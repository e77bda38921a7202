//! What operators change: members, and who leads.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use lockstead_api::{
    AskedTerms, ErrorBody, ErrorCode, MemberAnswer, ToGoBody, parse_add_member, parse_addresses, parse_if_match,
    parse_leader, parse_member_id, parse_terms,
};
use lockstead_core::ClusterId;
use lockstead_raft::{
    MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembershipId, SubmitError, ToGo,
};

use crate::answer;
use crate::body::{read_json, read_json_or_nothing};
use crate::node::Node;
use crate::service::Shared;

type Asked = Result<MemberRequest, ErrorBody>;

/// `POST /v1/admin/members`
pub(crate) async fn add<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    let asked = async {
        let if_match = if_match(request.headers())?;
        let (id, addresses, terms) = parse_add_member(&read_json(&shared.config, request).await?)?;
        let change = MemberChange::Add { id, peer: addresses.peer, api: addresses.api };
        Ok(request_of(change, &terms, if_match))
    };
    answer_to(&shared, asked.await).await
}

/// `PUT /v1/admin/members/{id}`
pub(crate) async fn set_addresses<N: Node>(
    State(shared): State<Arc<Shared<N>>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let asked = async {
        let (id, if_match) = (parse_member_id(&id)?, if_match(request.headers())?);
        let (addresses, terms) = parse_addresses(&read_json(&shared.config, request).await?)?;
        let change = MemberChange::Move { id, peer: addresses.peer, api: addresses.api };
        Ok(request_of(change, &terms, if_match))
    };
    answer_to(&shared, asked.await).await
}

/// `DELETE /v1/admin/members/{id}`
pub(crate) async fn remove<N: Node>(
    State(shared): State<Arc<Shared<N>>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let asked = of_one(&shared, &id, request, |id| MemberChange::Remove { id }).await;
    answer_to(&shared, asked).await
}

/// `POST /v1/admin/members/{id}/promote`
pub(crate) async fn promote<N: Node>(
    State(shared): State<Arc<Shared<N>>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let asked = of_one(&shared, &id, request, |id| MemberChange::Promote { id }).await;
    answer_to(&shared, asked).await
}

/// `POST /v1/admin/members/{id}/demote`
pub(crate) async fn demote<N: Node>(
    State(shared): State<Arc<Shared<N>>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let asked = of_one(&shared, &id, request, |id| MemberChange::Demote { id }).await;
    answer_to(&shared, asked).await
}

/// `POST /v1/admin/leader`
pub(crate) async fn lead<N: Node>(State(shared): State<Arc<Shared<N>>>, request: Request) -> Response {
    let asked = async {
        let if_match = if_match(request.headers())?;
        let (to, terms) = parse_leader(&read_json_or_nothing(&shared.config, request).await?)?;
        Ok(request_of(MemberChange::Lead { to }, &terms, if_match))
    };
    answer_to(&shared, asked.await).await
}

async fn of_one<N: Node>(
    shared: &Shared<N>,
    id: &str,
    request: Request,
    change: impl FnOnce(u64) -> MemberChange,
) -> Asked {
    let (id, if_match) = (parse_member_id(id)?, if_match(request.headers())?);
    let terms = parse_terms(&read_json_or_nothing(&shared.config, request).await?)?;
    Ok(request_of(change(id), &terms, if_match))
}

fn if_match(headers: &HeaderMap) -> Result<Option<MembershipId>, ErrorBody> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let (value, more) = (values.next(), values.next());
    // Several lines are one list, and a list is more than one tag.
    let text = value.map(|value| if more.is_some() { "" } else { value.to_str().unwrap_or_default() });
    let parsed = text.map(parse_if_match).transpose()?.flatten();
    Ok(parsed.map(|(term, index)| MembershipId { term, index }))
}

fn request_of(change: MemberChange, terms: &AskedTerms, if_match: Option<MembershipId>) -> MemberRequest {
    MemberRequest { change, if_match, wait_ms: terms.wait_ms, force: terms.force.map(ClusterId) }
}

async fn answer_to<N: Node>(shared: &Shared<N>, asked: Asked) -> Response {
    let request = match asked {
        Ok(request) => request,
        Err(refused) => return answer::error(&refused),
    };
    match shared.node.change_members(request).await {
        Ok(reply) => {
            let membership = reply.membership;
            with_etag(answer::ok(&member_answer(reply)), Some(membership))
        }
        Err(MemberError::Refused(refusal)) => answer::error(&refused(&refusal)),
        Err(MemberError::NoLeader) => answer::error(&answer::unavailable(SubmitError::NoLeader)),
        Err(MemberError::OutcomeUnknown) => answer::error(&answer::unavailable(SubmitError::OutcomeUnknown)),
    }
}

/// Names the membership that an answer tells of.
pub(crate) fn with_etag(mut response: Response, membership: Option<MembershipId>) -> Response {
    let tag = membership.and_then(|membership| HeaderValue::from_str(&format!("\"{membership}\"")).ok());
    response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
    response
}

fn member_answer(reply: MemberReply) -> MemberAnswer {
    let MemberReply { membership, changed, leader, to_go, warning } = reply;
    MemberAnswer { membership: membership.to_string(), changed, leader, to_go: to_go.map(to_go_body), warning }
}

fn to_go_body(ToGo { entries, bytes }: ToGo) -> ToGoBody {
    ToGoBody { entries, bytes }
}

fn refused(refusal: &MemberRefusal) -> ErrorBody {
    let code = match refusal {
        MemberRefusal::WouldLoseQuorum(_) => ErrorCode::WouldLoseQuorum,
        MemberRefusal::NotCaughtUp { .. } => ErrorCode::NotCaughtUp,
        MemberRefusal::ChangeInProgress => ErrorCode::ChangeInProgress,
        MemberRefusal::NodeIdReused(_) => ErrorCode::NodeIdReused,
        MemberRefusal::AddressInUse(_) => ErrorCode::AddressInUse,
        MemberRefusal::NodeUnreachable(_) => ErrorCode::NodeUnreachable,
        MemberRefusal::MembershipChanged { .. } => ErrorCode::MembershipChanged,
        MemberRefusal::UnknownNode(_) => ErrorCode::UnknownNode,
        MemberRefusal::WrongCluster(_) => ErrorCode::WrongCluster,
        MemberRefusal::AddressDiffers { .. } => ErrorCode::InvalidField,
    };
    let mut body = ErrorBody::new(code, refusal.to_string());
    match refusal {
        MemberRefusal::NotCaughtUp { to_go, .. } => body.error.to_go = to_go.map(to_go_body),
        MemberRefusal::MembershipChanged { now } => body.error.membership = Some(now.to_string()),
        MemberRefusal::AddressDiffers { kind, advertised, .. } => {
            body.error.field = Some(kind.to_string());
            body.error.allowed = Some(advertised.clone());
        }
        MemberRefusal::ChangeInProgress => body = body.retry_after_ms(500),
        _ => {}
    }
    body
}
