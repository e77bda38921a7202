//! Whether a batch that was proposed is in the log.

use lockstead_core::Applied;
use openraft::error::ClientWriteError;

use crate::types::{EntryApplied, TypeConfig};

/// What openraft's answer says of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Applied,
    Refused,
    /// It may still commit.
    Unknown,
}

/// Surely refused is only what openraft did not append, and what was applied and found void.
pub(crate) fn verdict(answer: &Result<EntryApplied, ClientWriteError<TypeConfig>>) -> Verdict {
    match answer {
        Ok(EntryApplied(Applied::Done)) => Verdict::Applied,
        Ok(EntryApplied(Applied::Void)) | Err(ClientWriteError::ForwardToLeader(_)) => Verdict::Refused,
        Err(_) => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use openraft::error::ForwardToLeader;

    use super::*;

    #[test]
    fn only_what_was_not_appended_or_is_void_is_surely_refused() {
        let verdicts = [
            Ok(EntryApplied(Applied::Done)),
            Ok(EntryApplied(Applied::Void)),
            Err(ClientWriteError::ForwardToLeader(ForwardToLeader::empty())),
            Err(ClientWriteError::LogEntryDiscarded(ForwardToLeader::empty())),
        ]
        .map(|answer| verdict(&answer));
        assert_eq!(verdicts, [Verdict::Applied, Verdict::Refused, Verdict::Refused, Verdict::Unknown]);
    }
}
