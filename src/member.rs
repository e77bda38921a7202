//! `lockstead member`: who belongs to the cluster, and who leads it.

use std::time::Duration;

use clap::{Args, Subcommand};
use lockstead_client::api::{ErrorCode, MemberAnswer, MemberRole, parse_if_match};
use lockstead_client::{CallError, Client, Endpoint, MemberChange, MemberTerms};

use crate::args::Reach;
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure, say};
use crate::text::plain;
use crate::{duration, node_id, status};

/// Of `member` and all below it.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done, or so already; 2 usage, or a wrong request: no such member, an id or address that is taken, another \
cluster, another membership than --if-membership; 69 unreachable, no quorum or outcome unknown: repeat it; 75 refused for \
now: a node that does not answer or has not caught up, a quorum that would be lost, another change in progress.";

/// A change that waits for nothing.
const NO_WAIT: Duration = Duration::ZERO;

/// What is to be done. Each may be repeated: what is so already is a success that changes nothing.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Show the members.
    List(ListArgs),
    /// Take a node in as a learner; it runs already, with an empty directory: lockstead serve --standby.
    #[command(after_help = EXIT_CODES)]
    Add(AddArgs),
    /// Change where a member is reached; then start it there.
    #[command(after_help = EXIT_CODES)]
    Move(MoveArgs),
    /// Let a learner vote, once it has caught up.
    #[command(after_help = EXIT_CODES)]
    Promote(PromoteArgs),
    /// Make a voter a learner.
    #[command(after_help = EXIT_CODES)]
    Demote(OneArgs),
    /// End a node's membership for good: its id is never used again, and the node ends with exit code 12.
    #[command(after_help = EXIT_CODES)]
    Remove(OneArgs),
    /// Hand leadership over.
    #[command(after_help = EXIT_CODES)]
    Transfer(TransferArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct AddArgs {
    /// The node's id, never used before.
    #[arg(value_parser = node_id::parse)]
    id: u64,
    #[command(flatten)]
    addresses: AddressesArgs,
    /// How long to wait for the node to be there, and to catch up.
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse, default_value = "10s")]
    wait: Duration,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct MoveArgs {
    /// The node's id.
    #[arg(value_parser = node_id::parse)]
    id: u64,
    #[command(flatten)]
    addresses: AddressesArgs,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
struct AddressesArgs {
    /// Where the other nodes reach it.
    #[arg(long, value_name = "HOST:PORT")]
    peer: Endpoint,
    /// Where clients reach it.
    #[arg(long, value_name = "HOST:PORT")]
    api: Endpoint,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PromoteArgs {
    /// The node's id.
    #[arg(value_parser = node_id::parse)]
    id: u64,
    /// How long to wait for the node to catch up.
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse, default_value = "10s")]
    wait: Duration,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct OneArgs {
    /// The node's id.
    #[arg(value_parser = node_id::parse)]
    id: u64,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct TransferArgs {
    /// Who is to lead [default: whoever is best, but not the one that leads].
    #[arg(value_parser = node_id::parse)]
    to: Option<u64>,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
struct TermsArgs {
    /// Only if the membership is still this one, as `status` and `member list` show it, or an `etag` in its quotes.
    #[arg(long, value_name = "ID", value_parser = membership)]
    if_membership: Option<String>,
    /// Do it although the quorum would be lost; the cluster's id, to be sure that it is the right one.
    #[arg(long, value_name = "CLUSTER_ID")]
    force: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

/// Reads the id of a membership, without quotes as the commands show it, or with them as the header `etag` has it.
fn membership(text: &str) -> Result<String, String> {
    let id = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    match parse_if_match(&format!("\"{id}\"")) {
        Ok(Some(_)) => Ok(id.to_owned()),
        _ => Err("allowed: TERM-INDEX as in 3-17, with or without quotes".to_owned()),
    }
}

/// Runs the command.
pub(crate) fn run(command: MemberCommand) -> Result<Exit, Failure> {
    match command {
        MemberCommand::List(args) => status::show(&args.reach, status::members),
        MemberCommand::Add(AddArgs { id, addresses: AddressesArgs { peer, api }, wait, terms }) => {
            let (peer, api) = (peer.authority().to_owned(), api.authority().to_owned());
            change(MemberChange::Add { id, peer, api }, format!("node {id} is a learner"), wait, terms)
        }
        MemberCommand::Move(MoveArgs { id, addresses: AddressesArgs { peer, api }, terms }) => {
            let done = format!("node {id} is reached at {} and {} (peers)", api.authority(), peer.authority());
            let (peer, api) = (peer.authority().to_owned(), api.authority().to_owned());
            change(MemberChange::Move { id, peer, api }, done, NO_WAIT, terms)
        }
        MemberCommand::Promote(PromoteArgs { id, wait, terms }) => {
            change(MemberChange::Promote(id), format!("node {id} votes"), wait, terms)
        }
        MemberCommand::Demote(OneArgs { id, terms }) => {
            change(MemberChange::Demote(id), format!("node {id} is a learner"), NO_WAIT, terms)
        }
        MemberCommand::Remove(OneArgs { id, terms }) => {
            change(MemberChange::Remove(id), format!("node {id} is removed"), NO_WAIT, terms)
        }
        MemberCommand::Transfer(TransferArgs { to, terms }) => {
            change(MemberChange::Lead(to), "leadership was handed over".to_owned(), NO_WAIT, terms)
        }
    }
}

fn change(change: MemberChange, done: String, wait: Duration, args: TermsArgs) -> Result<Exit, Failure> {
    let TermsArgs { if_membership, force, reach } = args;
    let terms = MemberTerms { wait, membership: if_membership, force };
    block_on(async move {
        let client = client(&reach);
        let call = async {
            let reply = client.change_members(&change, &terms).await;
            reply.map_err(|error| failure(print_refusal(error, &reach)))
        };
        let reply = until_signal(call).await?;
        if let Some(warning) = &reply.outcome.warning {
            say(&format!("note: {}", plain(warning)));
        }
        if reach.json {
            print(&reply.body)?;
        } else {
            let done = match change {
                MemberChange::Add { id, .. } if !reply.outcome.changed => what_it_is(&client, id).await.unwrap_or(done),
                _ => done,
            };
            print(line(&reply.outcome, &change, &done).as_bytes())?;
        }
        Ok(Exit::Done)
    })
}

/// A member that was to be added may have its vote already.
async fn what_it_is(client: &Client, id: u64) -> Option<String> {
    let cluster = client.cluster().await.ok()?.outcome;
    let member = cluster.members.iter().find(|member| member.id == id)?;
    Some(match member.role {
        MemberRole::Leader | MemberRole::Follower => format!("node {id} is a voter"),
        MemberRole::Learner => format!("node {id} is a learner"),
    })
}

fn line(answer: &MemberAnswer, change: &MemberChange, done: &str) -> String {
    let done = match change {
        _ if answer.changed => done.to_owned(),
        MemberChange::Lead(_) => format!("node {} leads already", answer.leader),
        _ => format!("{done} (it was so already)"),
    };
    let to_go = match answer.to_go {
        Some(to_go) if to_go.entries > 0 => {
            format!(", {} entries (about {} bytes) to go", to_go.entries, to_go.bytes)
        }
        _ => String::new(),
    };
    format!("{done}{to_go}; leader node {}, membership {}", answer.leader, plain(&answer.membership))
}

/// What may be different in a while is worth another try; what is not is a mistake.
fn failure(error: CallError) -> Failure {
    let exit = match &error {
        CallError::BadRequest(refusal) => match refusal.code() {
            ErrorCode::NotCaughtUp
            | ErrorCode::ChangeInProgress
            | ErrorCode::WouldLoseQuorum
            | ErrorCode::NodeUnreachable => Exit::Busy,
            _ => Exit::Usage,
        },
        _ => return error.into(),
    };
    Failure::new(exit, error)
}

#[cfg(test)]
mod tests {
    use lockstead_client::api::ToGoBody;

    use super::*;

    #[test]
    fn an_answer_is_one_line() {
        let mut answer =
            MemberAnswer { membership: "3-17".into(), changed: true, leader: 2, to_go: None, warning: None };
        let (promote, lead) = (MemberChange::Promote(4), MemberChange::Lead(Some(2)));
        assert_eq!(line(&answer, &promote, "node 4 votes"), "node 4 votes; leader node 2, membership 3-17");
        answer.changed = false;
        assert_eq!(line(&answer, &lead, "handed over"), "node 2 leads already; leader node 2, membership 3-17");
        answer.to_go = Some(ToGoBody { entries: 5, bytes: 600 });
        assert_eq!(
            line(&answer, &promote, "node 4 is a learner"),
            "node 4 is a learner (it was so already), 5 entries (about 600 bytes) to go; leader node 2, membership 3-17"
        );
    }

    #[test]
    fn a_membership_is_taken_with_and_without_the_quotes_of_an_etag() {
        assert_eq!(membership("3-1062"), Ok("3-1062".to_owned()));
        assert_eq!(membership("\"3-1062\""), Ok("3-1062".to_owned()));
        for wrong in ["", "*", "\"3-1062", "\"\"3-1062\"\"", "3", "3-", "x-1"] {
            assert!(membership(wrong).unwrap_err().contains("TERM-INDEX"), "{wrong}");
        }
    }
}
