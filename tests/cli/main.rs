//! The command line, as scripts and people use it.

#![cfg(test)]

#[expect(dead_code, unused_imports, reason = "shared with the other tests of real processes, which use more of it")]
#[path = "../harness/mod.rs"]
mod harness;

mod commands;
mod dev;
mod endpoints;
mod member;
mod restore;
mod run;
mod serve;
mod starts;
mod unreachable;
