//! Names of files: of a lock by its name, of what belongs to a lock file by that file's name.
//!
//! Invariants:
//! 1. Different names of locks give different files, also where a file system takes `A` and `a` for the same, or
//!    normalises Unicode: only lower-case ASCII is written. (For long names this rests on SHA-256.)
//! 2. The file of a lock is named `….lock` and begins with no dot; what belongs to it begins with a dot or ends in
//!    `.json`.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use sha2::{Digest, Sha256};

/// What file systems take as a name.
const FILE_NAME_BYTES_MAX: usize = 255;
/// Longer stems end in a hash.
const STEM_BYTES_MAX: usize = 180;
/// What of a long stem stays readable.
const STEM_BYTES_KEPT: usize = 100;
/// The longest addition by [`Derived`].
const ADDITION_BYTES_MAX: usize = 11;

/// The file of the lock `name`.
pub(crate) fn lock_file(name: &str) -> OsString {
    let mut stem = escaped(name);
    if stem.len() > STEM_BYTES_MAX {
        stem.truncate(STEM_BYTES_KEPT);
        stem.push_str(&hashed(name.as_bytes()));
    }
    OsString::from(stem + ".lock")
}

/// Where the hint about the holder of `file_name` lies.
pub(crate) fn sidecar(file_name: &OsStr) -> OsString {
    derived("", file_name, ".meta.json")
}

/// Where that hint is written before it takes its place.
pub(crate) fn temporary(file_name: &OsStr) -> OsString {
    derived(".", file_name, ".meta.tmp")
}

/// What is locked beside `file_name`.
pub(crate) fn guard(file_name: &OsStr) -> OsString {
    derived(".", file_name, ".guard")
}

fn derived(before: &str, file_name: &OsStr, after: &str) -> OsString {
    debug_assert!(before.len() + after.len() <= ADDITION_BYTES_MAX);
    let mut derived = OsString::from(before);
    if file_name.len() + ADDITION_BYTES_MAX > FILE_NAME_BYTES_MAX {
        derived.push(hashed(file_name.as_bytes()));
    } else {
        derived.push(file_name);
    }
    derived.push(after);
    derived
}

/// Like percent-encoding, with lower-case digits. A dot stays, but not at the begin.
fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        if matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') || (byte == b'.' && at > 0) {
            escaped.push(char::from(byte));
        } else {
            push_hex(&mut escaped, '%', &[byte]);
        }
    }
    escaped
}

/// `=` stands in no escaped name, so no escaped name looks like this.
fn hashed(bytes: &[u8]) -> String {
    let mut hashed = String::new();
    push_hex(&mut hashed, '=', &Sha256::digest(bytes));
    hashed
}

fn push_hex(text: &mut String, mark: char, bytes: &[u8]) {
    text.push(mark);
    for byte in bytes {
        let _never_fails = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, expected: &str) {
        assert_eq!(lock_file(name).to_str().unwrap(), expected, "{name:?}");
    }

    #[test]
    fn a_name_gives_a_file_that_leads_nowhere_else() {
        check("deploy-7_a.b", "deploy-7_a.b.lock");
        check("../../etc/x", "%2e./..%2fetc%2fx.lock".replace('/', "%2f").as_str());
        check("a/b", "a%2fb.lock");
        check(".", "%2e.lock");
        check("..", "%2e..lock");
        check("A", "%41.lock");
        check("a", "a.lock");
        check("%41", "%2541.lock");
        check("x\0y", "x%00y.lock");
        check("é", "%c3%a9.lock");
    }

    #[test]
    fn a_long_name_keeps_its_begin_and_ends_in_a_hash() {
        let (long, other) = ("a".repeat(300), "a".repeat(301));
        let file = lock_file(&long).into_string().unwrap();
        assert!(file.starts_with(&("a".repeat(100) + "=")), "{file}");
        assert_eq!(file.len(), 100 + 1 + 64 + ".lock".len());
        assert_ne!(lock_file(&long), lock_file(&other));
    }

    #[test]
    fn what_belongs_to_a_lock_file_fits_whatever_its_length() {
        for length in [1, 243, 244, 245, 255] {
            let name = OsString::from("n".repeat(length));
            for derived in [sidecar(&name), temporary(&name), guard(&name)] {
                assert!(derived.len() <= FILE_NAME_BYTES_MAX, "{length}: {derived:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn different_names_give_different_files_whatever_the_file_system_folds(one in ".{1,80}", two in ".{1,80}") {
            let files = [lock_file(&one), lock_file(&two)].map(|file| file.to_str().unwrap().to_lowercase());
            prop_assert_eq!(one == two, files[0] == files[1]);
            prop_assert!(files[0].bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
            prop_assert!(!files[0].starts_with('.') && files[0].len() <= FILE_NAME_BYTES_MAX);
        }
    }
}
