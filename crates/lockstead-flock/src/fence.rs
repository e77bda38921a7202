//! The fence of a path: a number that rises with every hold, kept in the files that are locked.
//!
//! A file begins with one line of fixed width, written by one write, so that a killed process leaves the old number or
//! the new one. It is not synced: after a power cut the wall clock is ahead of what was lost. Contents that can't be
//! read count as no fence.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The highest fence, 2^53 − 1: it survives JSON and languages whose only number is a double.
pub const FENCE_MAX: u64 = (1 << 53) - 1;

/// A longer file was made by somebody else, for something else.
pub(crate) const FILE_BYTES_MAX: u64 = 64;

const MARK: &str = "fence=";
const DIGITS: usize = 20;
const LINE_BYTES: usize = MARK.len() + DIGITS + 1;

/// Why a fence was not raised.
#[derive(Debug)]
pub(crate) enum RaiseError {
    Exhausted,
    Io(io::Error),
}

impl From<io::Error> for RaiseError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Raises the fence kept in `files`, all locked by the caller, above each of theirs, to the wall clock at least.
pub(crate) fn raise(files: [&File; 2], wall_us: u64) -> Result<u64, RaiseError> {
    let mut last = 0;
    for file in files {
        last = last.max(read(file)?.unwrap_or(0));
    }
    let next = last.saturating_add(1).max(wall_us);
    if next > FENCE_MAX {
        return Err(RaiseError::Exhausted);
    }
    for file in files {
        write(file, next)?;
    }
    Ok(next)
}

/// The wall clock in µs since 1970; it only keeps fences rising where a stored one was lost.
pub(crate) fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(0)
}

fn read(file: &File) -> io::Result<Option<u64>> {
    let mut line = [0; LINE_BYTES];
    let mut filled = 0;
    while filled < LINE_BYTES {
        match file.read_at(&mut line[filled..], filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(parse(&line[..filled]))
}

fn parse(line: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(line).ok()?.strip_prefix(MARK)?.strip_suffix('\n')?;
    let is_whole = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole { digits.parse().ok() } else { None }
}

fn write(file: &File, fence: u64) -> io::Result<()> {
    file.write_all_at(format!("{MARK}{fence:0DIGITS$}\n").as_bytes(), 0)?;
    if file.metadata()?.len() == LINE_BYTES as u64 { Ok(()) } else { file.set_len(LINE_BYTES as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fence that follows what two files hold.
    fn check(contents: [&str; 2], wall_us: u64, expected: Option<u64>) {
        let files = contents.map(|text| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            file
        });
        let raised = raise([&files[0], &files[1]], wall_us).ok();
        assert_eq!(raised, expected, "{contents:?}");
        for file in files {
            assert!(raised.is_none() || read(&file).unwrap() == raised, "{contents:?}");
        }
    }

    #[test]
    fn a_fence_rises_from_the_higher_of_two_files_and_reaches_the_wall_clock() {
        check(["", ""], 1_000, Some(1_000));
        check(["fence=00000000000000002000\n", ""], 1_000, Some(2_001));
        check(["", "fence=00000000000000002000\n"], 1_000, Some(2_001));
        check(["fence=00000000000000002000\n", "fence=00000000000000003000\n"], 1_000, Some(3_001));
        check(["fence=00000000000000002000\n", ""], 5_000, Some(5_000));
    }

    #[test]
    fn what_cannot_be_read_counts_as_no_fence() {
        for garbage in [
            "fence=",
            "fence=12\n",
            "fence=0000000000000000200x\n",
            "pid=17\n",
            "\0\0\0",
            "ä",
            "fence=+0000000000000002000\n",
        ] {
            check([garbage, ""], 1_000, Some(1_000));
        }
        check(["fence=00000000000000002000\ntail of an older format", ""], 1_000, Some(2_001));
    }

    #[test]
    fn at_the_highest_fence_nothing_is_granted() {
        check([&format!("fence={:020}\n", FENCE_MAX - 1), ""], 1_000, Some(FENCE_MAX));
        check([&format!("fence={FENCE_MAX:020}\n"), ""], 1_000, None);
        check(["fence=18446744073709551615\n", ""], 1_000, None);
        check(["", ""], u64::MAX, None);
    }
}
