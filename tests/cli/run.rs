//! Runs commands of the binary.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::api::Api;
use crate::harness::node::LOCKSTEAD;

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn must_exit(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// The one line on stdout, without its end.
    #[track_caller]
    pub(crate) fn only_line(&self) -> &str {
        let line = self.stdout.strip_suffix('\n').unwrap_or_else(|| panic!("no whole line: {self:?}"));
        assert!(!line.contains('\n'), "more than one line: {self:?}");
        line
    }
}

/// A command with these arguments that asks these nodes.
pub(crate) fn lockstead(apis: &[Api], args: &[&str]) -> Command {
    let mut command = Command::new(LOCKSTEAD);
    let endpoints: Vec<String> = apis.iter().map(|api| format!("http://{}", api.address)).collect();
    command.args(args).env("LOCKSTEAD_ENDPOINTS", endpoints.join(",")).env_remove("LOCKSTEAD_TOKEN");
    command
}

/// Runs a command with something on its stdin.
pub(crate) fn run_with(mut command: Command, stdin: &str) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    // It may end without reading.
    let _unread = child.stdin.take().expect("a pipe").write_all(stdin.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs `lockstead` with these arguments and an empty stdin.
pub(crate) fn run(apis: &[Api], args: &[&str]) -> Ran {
    run_with(lockstead(apis, args), "")
}
