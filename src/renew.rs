//! `lockstead renew`.

use lockstead_client::{Claim, Renew, RenewOutcome};

use crate::args::RenewArgs;
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure, say};
use crate::text::{length, length_ms, quoted};
use crate::token;

/// Prolongs a hold.
pub(crate) fn run(args: RenewArgs) -> Result<Exit, Failure> {
    let RenewArgs { name, token, owner, ttl, reach } = args;
    let claim = match owner {
        Some(owner) => Claim::Owner(owner),
        None => Claim::Token(token::find(token)?),
    };
    let request = Renew { name, claim, ttl };
    block_on(async move {
        let client = client(&reach);
        let call = async { client.renew(&request).await.map_err(|error| print_refusal(error, &reach)) };
        let reply = until_signal(call).await?;
        if reach.json {
            print(&reply.body)?;
        }
        Ok(report(&request.name, &reply.outcome))
    })
}

fn report(name: &str, outcome: &RenewOutcome) -> Exit {
    let name = quoted(name);
    let RenewOutcome::Renewed(renewed) = outcome else {
        say(&format!("{name} is not held by this claim"));
        return Exit::Lost;
    };
    let (fence, ttl, valid_for) = (renewed.answer.fence.0, length_ms(renewed.answer.ttl_ms), renewed.valid_for());
    say(&format!("renewed {name}: fence {fence}, ttl {ttl}, valid for {}", length(valid_for)));
    if valid_for.is_zero() { Exit::Lost } else { Exit::Done }
}
