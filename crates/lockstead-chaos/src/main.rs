//! Tries to break a Lockstead cluster.

use std::process::ExitCode;

use clap::Parser;
use lockstead_chaos::args::Cli;
use lockstead_chaos::verdict::carry_out;

fn main() -> ExitCode {
    carry_out(Cli::parse().command()).into()
}
