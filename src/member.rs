//! `lockstead member`: who belongs to the cluster, and who leads it.

use clap::{Args, Subcommand};
use lockstead_client::api::{ErrorCode, MemberAnswer};
use lockstead_client::{CallError, Endpoint, MemberChange, MemberTerms};

use crate::args::Reach;
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::duration;
use crate::exit::{Exit, Failure, say};
use crate::status;
use crate::text::plain;

/// What is to be done. Each may be repeated: what is so already is a success that changes nothing.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Show the members.
    List(ListArgs),
    /// Take a node in as a learner; it runs already, with an empty directory: lockstead serve --standby.
    Add(AddArgs),
    /// Change where a member is reached; then start it there.
    Move(AddArgs),
    /// Let a learner vote, once it has caught up.
    Promote(OneArgs),
    /// Make a voter a learner.
    Demote(OneArgs),
    /// End a node's membership for good: its id is never used again, and the node ends with exit code 12.
    Remove(OneArgs),
    /// Hand leadership over.
    Transfer(TransferArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct AddArgs {
    /// The node's id, from 1.
    #[arg(value_parser = node_id)]
    id: u64,
    /// Where the other nodes reach it.
    #[arg(long, value_name = "HOST:PORT")]
    peer: Endpoint,
    /// Where clients reach it.
    #[arg(long, value_name = "HOST:PORT")]
    api: Endpoint,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct OneArgs {
    /// The node's id.
    #[arg(value_parser = node_id)]
    id: u64,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct TransferArgs {
    /// Who is to lead [default: whoever is best, but not the one that leads].
    #[arg(value_parser = node_id)]
    to: Option<u64>,
    #[command(flatten)]
    terms: TermsArgs,
}

#[derive(Args, Clone, Debug)]
struct TermsArgs {
    /// How long to wait for the node to be there, or to catch up.
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse, default_value = "10s")]
    wait: std::time::Duration,
    /// Only if the membership is still this one, as `member list` shows it.
    #[arg(long, value_name = "ID")]
    if_membership: Option<String>,
    /// Do it although the quorum would be lost; the cluster's id, to be sure that it is the right one.
    #[arg(long, value_name = "CLUSTER_ID")]
    force: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

fn node_id(text: &str) -> Result<u64, String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text.parse().ok().filter(|id| plain && (1..=lockstead_client::api::NODE_ID_MAX).contains(id));
    id.ok_or_else(|| "a number from 1 on is needed".to_owned())
}

/// Runs the command.
pub(crate) fn run(command: MemberCommand) -> Result<Exit, Failure> {
    match command {
        MemberCommand::List(args) => status::show(&args.reach, status::members),
        MemberCommand::Add(AddArgs { id, peer, api, terms }) => {
            let (peer, api) = (peer.authority().to_owned(), api.authority().to_owned());
            change(MemberChange::Add { id, peer, api }, format!("node {id} is a learner"), terms)
        }
        MemberCommand::Move(AddArgs { id, peer, api, terms }) => {
            let done = format!("node {id} is reached at {} and {} (peers)", api.authority(), peer.authority());
            let (peer, api) = (peer.authority().to_owned(), api.authority().to_owned());
            change(MemberChange::Move { id, peer, api }, done, terms)
        }
        MemberCommand::Promote(OneArgs { id, terms }) => {
            change(MemberChange::Promote(id), format!("node {id} votes"), terms)
        }
        MemberCommand::Demote(OneArgs { id, terms }) => {
            change(MemberChange::Demote(id), format!("node {id} is a learner"), terms)
        }
        MemberCommand::Remove(OneArgs { id, terms }) => {
            change(MemberChange::Remove(id), format!("node {id} is removed"), terms)
        }
        MemberCommand::Transfer(TransferArgs { to, terms }) => {
            change(MemberChange::Lead(to), "leadership was handed over".to_owned(), terms)
        }
    }
}

fn change(change: MemberChange, done: String, args: TermsArgs) -> Result<Exit, Failure> {
    let TermsArgs { wait, if_membership, force, reach } = args;
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
            print(line(&reply.outcome, &done).as_bytes())?;
        }
        Ok(Exit::Done)
    })
}

fn line(answer: &MemberAnswer, done: &str) -> String {
    let already = if answer.changed { "" } else { " (it was so already)" };
    let to_go = match answer.to_go {
        Some(to_go) if to_go.entries > 0 => {
            format!(", {} entries (about {} bytes) to go", to_go.entries, to_go.bytes)
        }
        _ => String::new(),
    };
    format!("{done}{already}{to_go}; leader node {}, membership {}", answer.leader, plain(&answer.membership))
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
        assert_eq!(line(&answer, "node 4 votes"), "node 4 votes; leader node 2, membership 3-17");
        answer.changed = false;
        answer.to_go = Some(ToGoBody { entries: 5, bytes: 600 });
        assert_eq!(
            line(&answer, "node 4 is a learner"),
            "node 4 is a learner (it was so already), 5 entries (about 600 bytes) to go; leader node 2, membership 3-17"
        );
    }

    #[test]
    fn ids_are_plain_numbers_from_one_on() {
        assert_eq!(node_id("4"), Ok(4));
        for text in ["0", "+4", "-4", "four", "", "9007199254740992"] {
            assert!(node_id(text).is_err(), "{text}");
        }
    }
}
