//! Other processes: the test binary itself, started with a part to play.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

/// The test that plays the part; each test binary that starts processes has one of this name.
const TEST: &str = "this_is_another_process_if_started_as_one";
const PART: &str = "LOCKSTEAD_FLOCK_PART";
const PATH: &str = "LOCKSTEAD_FLOCK_PATH";
/// What begins a line on standard error that is meant for the starter. Standard output belongs to the test runner.
pub(crate) const MARK: char = '@';

/// The part that this process was started to play, and the path it got.
pub(crate) fn part() -> Option<(String, PathBuf)> {
    Some((std::env::var(PART).ok()?, std::env::var_os(PATH)?.into()))
}

/// A process that this one started; killed when dropped.
pub(crate) struct Other {
    pub(crate) child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Other {
    pub(crate) fn start(part: &str, path: &Path) -> Self {
        Self::spawn(&mut Command::new(std::env::current_exe().unwrap()), part, path)
    }

    pub(crate) fn spawn(command: &mut Command, part: &str, path: &Path) -> Self {
        command.args(["--exact", TEST, "--nocapture", "--test-threads=1"]).env(PART, part).env(PATH, path);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, said }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it says next. What is not meant for us, such as a panic, is passed on.
    pub(crate) fn says(&mut self) -> String {
        for line in &mut self.said {
            let line = line.unwrap();
            match line.strip_prefix(MARK) {
                Some(message) => return message.to_owned(),
                None => eprintln!("{}: {line}", self.child.id()),
            }
        }
        "nothing any more".to_owned()
    }

    /// By SIGKILL; whether it was not too late for that.
    pub(crate) fn kill(&mut self) -> bool {
        self.child.kill().unwrap();
        self.child.wait().unwrap().signal() == Some(9)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests measure the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
