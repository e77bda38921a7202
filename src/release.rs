//! `lockstead release`.

use lockstead_client::ReleaseOutcome;

use crate::args::ReleaseArgs;
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure, say};
use crate::text::quoted;
use crate::token;

/// Ends a hold.
pub(crate) fn run(args: ReleaseArgs) -> Result<Exit, Failure> {
    let token = token::find(args.token.clone())?;
    block_on(async move {
        let client = client(&args.reach);
        let call =
            async { client.release(&args.name, &token).await.map_err(|error| print_refusal(error, &args.reach)) };
        let reply = until_signal(call).await?;
        if args.reach.json {
            print(&reply.body)?;
        }
        Ok(report(&args.name, reply.outcome))
    })
}

fn report(name: &str, outcome: ReleaseOutcome) -> Exit {
    match outcome {
        ReleaseOutcome::Released => {
            say(&format!("released {}", quoted(name)));
            Exit::Done
        }
        ReleaseOutcome::NotHolder => {
            say(&format!("{} is not held with this token", quoted(name)));
            Exit::Lost
        }
    }
}
