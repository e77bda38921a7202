//! `lockstead get`.

use std::fmt::Write;

use lockstead_client::api::{GetAnswer, HolderBody, LockMode};
use lockstead_client::{Freshness, GetOutcome};

use crate::args::GetArgs;
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure, say};
use crate::text::{length_ms, plain, quoted};

/// Shows who holds a lock and who waits.
pub(crate) fn run(args: &GetArgs) -> Result<Exit, Failure> {
    block_on(async {
        let freshness = if args.stale { Freshness::Stale } else { Freshness::Linearizable };
        let client = client(&args.reach);
        let call = async { client.get(&args.name, freshness).await.map_err(|error| print_refusal(error, &args.reach)) };
        let reply = until_signal(call).await?;
        match (&reply.outcome, args.reach.json) {
            (_, true) => print(&reply.body)?,
            (GetOutcome::Held(answer), false) => print(description(answer).as_bytes())?,
            (GetOutcome::NotHeld, false) => say(&format!("{} is not held", quoted(&args.name))),
        }
        Ok(match &reply.outcome {
            GetOutcome::Held(answer) if !answer.holders.is_empty() => Exit::Done,
            GetOutcome::Held(_) | GetOutcome::NotHeld => Exit::NothingHeld,
        })
    })
}

fn description(answer: &GetAnswer) -> String {
    let stale = if answer.stale { " (perhaps out of date)" } else { "" };
    let mut text = format!("{}{stale}", quoted(&answer.name));
    for holder in &answer.holders {
        // Writing to a String does not fail.
        let _infallible = write!(text, "\n  held by {}", holder_line(holder));
    }
    for (position, waiter) in answer.waiters.iter().enumerate() {
        let (owner, waiting) = (owner(waiter.owner.as_deref()), length_ms(waiter.waiting_ms));
        let _infallible = write!(text, "\n  waiting {}: {owner} for {waiting}", position + 1);
    }
    text
}

fn holder_line(holder: &HolderBody) -> String {
    let mode = match holder.mode {
        LockMode::Exclusive => "exclusive",
        LockMode::Shared => "shared",
    };
    let labels: Vec<_> =
        holder.metadata.iter().map(|(key, value)| format!("{}={}", plain(key), quoted(value))).collect();
    let labels = if labels.is_empty() { String::new() } else { format!(", {}", labels.join(" ")) };
    format!(
        "{}, fence {}, {mode}, since {}, for {} more{labels}",
        owner(holder.owner.as_deref()),
        holder.fence.0,
        plain(&holder.acquired_at),
        length_ms(holder.expires_in_ms),
    )
}

fn owner(owner: Option<&str>) -> String {
    owner.map_or_else(|| "nobody named".to_owned(), quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_described_in_lines() {
        let answer = r#"{"name":"l","holders":[{"fence":6,"owner":null,"mode":"exclusive","acquired_at":"2026-01-02T03:04:05.006Z","expires_in_ms":1500,"metadata":{"k":"v"}}],"waiters":[{"owner":"w","waiting_ms":20}]}"#;
        let expected = "\"l\"\n  held by nobody named, fence 6, exclusive, since 2026-01-02T03:04:05.006Z, for 1s 500ms more, k=\"v\"\n  waiting 1: \"w\" for 20ms";
        assert_eq!(description(&serde_json::from_str(answer).unwrap()), expected);
    }
}
