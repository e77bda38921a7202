//! How the process ends: one code per kind of end, so that scripts need not read messages.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use lockstead_client::CallError;
use lockstead_raft::{OpenError, StopReason};

use crate::text::plain;

/// A kind of end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done as asked.
    Done,
    /// `get`: nobody holds the lock.
    NothingHeld,
    /// The command line, the configuration or the request is wrong.
    Usage,
    /// `serve`: acknowledged data is damaged or missing.
    Damage,
    /// `serve`: the disk refuses.
    DiskFailure,
    /// `serve`: the cluster has removed this node.
    Removed,
    /// `serve`: the cluster or the directory refuses this node's identity.
    IdentityRefused,
    /// `serve`: another process uses the data directory.
    DirectoryInUse,
    /// Nobody who could decide was reached, or it may or may not have taken effect; `serve`: this host does not have
    /// the address to listen on, or not yet (`EX_UNAVAILABLE`).
    Unavailable,
    /// A fault of this program or of its surroundings (`EX_SOFTWARE`).
    Internal,
    /// Held by another, wait over, or limit reached (`EX_TEMPFAIL`).
    Busy,
    /// Not the holder, or no longer.
    Lost,
    /// Ended by this signal.
    Signal(u8),
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::NothingHeld => 1,
            Self::Usage => 2,
            Self::Damage => 10,
            Self::DiskFailure => 11,
            Self::Removed => 12,
            Self::IdentityRefused => 13,
            Self::DirectoryInUse => 14,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::Busy => 75,
            Self::Lost => 76,
            Self::Signal(number) => 128 + number,
        }
    }

    /// Ends the process here: nothing is dropped, so nothing is written any more.
    pub(crate) fn now(self) -> ! {
        std::process::exit(self.code().into())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// An end with a message for people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Writes the message to stderr.
    pub(crate) fn report(self) -> Exit {
        say(&self.message);
        self.exit
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let exit = match &error {
            CallError::BadRequest(_) | CallError::OtherCluster { .. } => Exit::Usage,
            CallError::Unreachable { .. }
            | CallError::NoQuorum { .. }
            | CallError::OutcomeUnknown { .. }
            | CallError::NotUnderstood { .. } => Exit::Unavailable,
            CallError::NoRandomness(_) => Exit::Internal,
        };
        Self::new(exit, error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let exit = match &error {
            OpenError::InUse { .. } => Exit::DirectoryInUse,
            OpenError::Damaged { .. } => Exit::Damage,
            OpenError::OtherNode { .. } => Exit::IdentityRefused,
            OpenError::Newer { .. } | OpenError::Moved { .. } | OpenError::Plant { .. } => Exit::Usage,
            OpenError::Io { .. } => Exit::DiskFailure,
        };
        Self::new(exit, error)
    }
}

impl From<&StopReason> for Exit {
    fn from(reason: &StopReason) -> Self {
        match reason {
            StopReason::Storage(_) => Self::DiskFailure,
            StopReason::Removed(_) => Self::Removed,
            StopReason::Moved(_) => Self::Usage,
            StopReason::Identity(_) => Self::IdentityRefused,
            StopReason::Fatal(_) => Self::Internal,
        }
    }
}

/// Writes one line to stderr. What others wrote, names above all, cannot steer the terminal.
pub(crate) fn say(message: &str) {
    // Nobody is left to be told if stderr is gone.
    let _unheard = writeln!(std::io::stderr(), "lockstead: {}", plain(message));
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn each_end_of_a_node_has_its_code() {
        let path = PathBuf::from("d1");
        let in_use = OpenError::InUse { path: path.clone(), holder: "pid 7".into() };
        assert_eq!(Failure::from(in_use).exit.code(), 14);
        let damaged = OpenError::Damaged { file: path.clone(), why: "w".into() };
        assert_eq!(Failure::from(damaged).exit.code(), 10);
        assert_eq!(Failure::from(OpenError::OtherNode { path, found: 1, asked: 2 }).exit.code(), 13);
        assert_eq!(Exit::from(&StopReason::Storage("s".into())).code(), 11);
        assert_eq!(Exit::from(&StopReason::Removed("r".into())).code(), 12);
        assert_eq!(Exit::from(&StopReason::Identity("i".into())).code(), 13);
        assert_eq!(Exit::from(&StopReason::Fatal("f".into())).code(), 70);
    }

    #[test]
    fn what_could_not_be_found_out_is_69() {
        let last = "l".to_owned();
        let unknown = CallError::OutcomeUnknown { request_id: None, last: last.clone() };
        assert_eq!(Failure::from(unknown).exit.code(), 69);
        assert_eq!(Failure::from(CallError::NoQuorum { last: last.clone() }).exit.code(), 69);
        assert_eq!(Failure::from(CallError::Unreachable { last }).exit.code(), 69);
        assert_eq!((Exit::Busy.code(), Exit::Lost.code(), Exit::Signal(2).code()), (75, 76, 130));
    }
}
