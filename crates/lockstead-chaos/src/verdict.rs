//! From a command to its exit code.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::{CheckArgs, CheckOptions, Command, RunArgs};
use crate::checker::{self, Limits, Report};
use crate::clock::secs;
use crate::history::History;
use crate::report::{Checked, Conclusion, Summary, page};
use crate::run::{HISTORY, run};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// No violation.
    Ok,
    /// A violation.
    Violation,
    /// Nobody knows: not decided in the time given, or there was no run.
    Unknown,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Ok => Self::SUCCESS,
            Exit::Violation => Self::from(1),
            Exit::Unknown => Self::from(3),
        }
    }
}

impl From<Conclusion> for Exit {
    fn from(conclusion: Conclusion) -> Self {
        match conclusion {
            Conclusion::Ok => Self::Ok,
            Conclusion::Violation => Self::Violation,
            Conclusion::Undecided => Self::Unknown,
        }
    }
}

/// Does what the command line asks for, and says on stdout what came of it.
pub fn carry_out(command: Command) -> Exit {
    let done = match command {
        Command::Run(args) => do_run(&args),
        Command::Check(args) => do_check(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("lockstead-chaos: {error}");
        Exit::Unknown
    })
}

fn do_run(args: &RunArgs) -> Result<Exit, Box<dyn Error>> {
    let (seed, out) = (args.seed(), out_dir(args.out.as_deref())?);
    let repeat = args.repeat(seed);
    eprintln!("{repeat}\noutput goes to {}", out.display());
    let run = run(args, seed, &out)?;
    // The history first: it can be checked again, whatever happens to the checker.
    run.history.write(&out.join(HISTORY))?;
    let report = judge(&run.history, &args.check);
    let summary = Summary::new(&run, &report, repeat);
    let json = serde_json::to_string_pretty(&summary)?;
    fs::write(out.join("summary.json"), &json)?;
    fs::write(out.join("report.html"), page(&run, &summary))?;
    if args.check.json {
        println!("{json}");
    } else {
        println!("{summary}\nsee {}", out.join("report.html").display());
    }
    Ok(summary.conclusion.into())
}

fn do_check(args: &CheckArgs) -> Result<Exit, Box<dyn Error>> {
    let history = History::read(&args.history)?;
    let report = judge(&history, &args.options);
    let (checked, conclusion) = (Checked::from(&report), Conclusion::of(&report));
    if args.options.json {
        let summary = serde_json::json!({"conclusion": conclusion, "checked": checked});
        println!("{summary:#}");
    } else {
        println!("{checked}verdict: {conclusion}");
    }
    Ok(conclusion.into())
}

fn judge(history: &History, options: &CheckOptions) -> Report {
    checker::check(history, &Limits { check_for: secs(options.check_seconds), ..Limits::default() })
}

fn out_dir(wanted: Option<&Path>) -> io::Result<PathBuf> {
    match wanted {
        Some(dir) => {
            fs::create_dir_all(dir)?;
            std::path::absolute(dir)
        }
        None => Ok(tempfile::Builder::new().prefix("lockstead-chaos-").tempdir()?.keep()),
    }
}
