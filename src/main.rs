//! Lockstead: a replicated consensus lock store, in one binary.

mod acquire;
mod args;
mod backup;
mod calls;
mod config;
mod dev;
mod duration;
mod exit;
mod get;
mod lineage;
mod logging;
mod member;
mod node_id;
mod recover;
mod release;
mod renew;
mod serve;
mod signals;
mod status;
mod text;
mod token;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::exit::Failure;

fn main() -> ExitCode {
    run().unwrap_or_else(Failure::report).into()
}

fn run() -> Result<exit::Exit, Failure> {
    match Cli::parse().command {
        Command::Serve(options) => serve::run(options),
        Command::Dev(args) => dev::run(&args),
        Command::Acquire(args) => acquire::run(args),
        Command::Release(args) => release::run(args),
        Command::Renew(args) => renew::run(args),
        Command::Get(args) => get::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Member(command) => member::run(command),
        Command::Backup(args) => backup::run(args),
        Command::Recover(args) => recover::run(&args),
    }
}
