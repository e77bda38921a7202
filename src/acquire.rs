//! `lockstead acquire`.

use std::time::Duration;

use lockstead_client::{Acquire, AcquireOutcome, CallError, Client, ClientConfig, Endpoint, Granted, Held, Reply};

use crate::args::AcquireArgs;
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure, say};
use crate::text::{length, length_ms, quoted};

const GIVE_BACK: Duration = Duration::from_secs(2);

/// Takes a lock and prints its token alone on stdout.
pub(crate) fn run(args: AcquireArgs) -> Result<Exit, Failure> {
    block_on(acquire(args))
}

async fn acquire(args: AcquireArgs) -> Result<Exit, Failure> {
    let AcquireArgs { name, ttl, wait, owner, request_id, reach } = args;
    let request = Acquire { name, ttl, wait, owner, request_id, ..Acquire::default() };
    let client = client(&reach);
    let call = async { client.acquire(&request).await.map_err(|error| with_way_out(print_refusal(error, &reach))) };
    let reply = until_signal(call).await?;
    match &reply.outcome {
        AcquireOutcome::Granted(granted) => {
            let printed = print_grant(&reply, granted, reach.json);
            if printed.is_err() {
                give_back(&reach.endpoints, granted).await;
            }
            printed
        }
        refused => {
            if reach.json {
                print(&reply.body)?;
            }
            say(&refused_line(&request.name, refused));
            Ok(Exit::Busy)
        }
    }
}

/// What became unknown can be found out: the same request id brings the grant, if there is one.
fn with_way_out(error: CallError) -> Failure {
    let way_out = match &error {
        CallError::OutcomeUnknown { request_id: Some(request_id), .. } => {
            format!("; the same command with --request-id {request_id} brings the grant, if there is one")
        }
        _ => String::new(),
    };
    let Failure { exit, message } = error.into();
    Failure { exit, message: message + &way_out }
}

fn print_grant(reply: &Reply<AcquireOutcome>, granted: &Granted, json: bool) -> Result<Exit, Failure> {
    if json {
        print(&reply.body)?;
    } else {
        print(granted.answer.token.to_string().as_bytes())?;
    }
    say(&granted_line(granted));
    // An answer that took longer than the hold is of no use to anybody.
    Ok(if granted.valid_for().is_zero() { Exit::Lost } else { Exit::Done })
}

/// Nobody got the token, so nobody could ever release the lock.
async fn give_back(endpoints: &[Endpoint], granted: &Granted) {
    let client = Client::new(endpoints.to_vec(), ClientConfig { timeout: GIVE_BACK });
    let token = granted.answer.token.to_string().into();
    if let Err(error) = client.release(&granted.answer.name, &token).await {
        say(&format!("{} could not be given back, its TTL ends it: {error}", quoted(&granted.answer.name)));
    }
}

fn granted_line(granted: &Granted) -> String {
    let answer = &granted.answer;
    let verb = if answer.renewed { "renewed" } else { "granted" };
    let valid_for = length(granted.valid_for());
    format!(
        "{verb} {}: fence {}, ttl {}, valid for {valid_for}",
        quoted(&answer.name),
        answer.fence.0,
        length_ms(answer.ttl_ms)
    )
}

fn refused_line(name: &str, refused: &AcquireOutcome) -> String {
    match refused {
        AcquireOutcome::Held(held) => held_line(name, held),
        AcquireOutcome::LimitExceeded { limit, current } => {
            format!("{} is refused: {current} locks are held, {limit} may be", quoted(name))
        }
        AcquireOutcome::Granted(granted) => granted_line(granted),
    }
}

fn held_line(name: &str, Held { holders, queue_len, hold_off_ms }: &Held) -> String {
    if *hold_off_ms > 0 {
        let left = length_ms(*hold_off_ms);
        return format!("{} is not granted yet: nothing is for {left} more, after a restore", quoted(name));
    }
    let who = holders.first().map_or_else(
        || "others wait for it".to_owned(),
        |holder| {
            let owner = holder.owner.as_deref().map_or_else(|| "nobody named".to_owned(), quoted);
            format!("held by {owner}, fence {}, for {} more", holder.fence.0, length_ms(holder.expires_in_ms))
        },
    );
    format!("{} is not free: {who}; {queue_len} waiting", quoted(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_is_in_the_way() {
        let holder =
            r#"{"fence":6,"owner":"o\u001b","mode":"exclusive","acquired_at":"","expires_in_ms":1500,"metadata":{}}"#;
        let held = Held { holders: vec![serde_json::from_str(holder).unwrap()], queue_len: 2, hold_off_ms: 0 };
        assert_eq!(
            held_line("l\n", &held),
            r#""l\n" is not free: held by "o\u{1b}", fence 6, for 1s 500ms more; 2 waiting"#
        );
        let held = Held { holders: Vec::new(), queue_len: 1, hold_off_ms: 0 };
        assert_eq!(held_line("l", &held), r#""l" is not free: others wait for it; 1 waiting"#);
        let held = Held { hold_off_ms: 1_500, ..held };
        assert_eq!(held_line("l", &held), r#""l" is not granted yet: nothing is for 1s 500ms more, after a restore"#);
    }
}
