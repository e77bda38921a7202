//! Who holds a lock: a hint for people, in a file beside the lock file. It decides nothing.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::names;
use crate::spot::Spot;

/// A longer file was not written by a holder.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// What a caller says of itself. Nothing in it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The process; 0 is this one.
    pub pid: u32,
    /// Free text.
    pub id: String,
    /// Free text, such as `agent` or `cli`.
    pub kind: String,
    /// RFC 3339; empty is the moment of the grant.
    pub acquired_at: String,
    /// Free text, what the lock is held for.
    pub op_id: String,
}

/// What is known of a holder. All of it may be empty, out of date, or made up by whoever may write to the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The holder's process; 0 if unknown.
    pub owner_pid: u32,
    /// Free text.
    pub owner_id: String,
    /// Free text, such as `agent` or `cli`.
    pub owner_kind: String,
    /// When it was acquired by the wall clock: RFC 3339, UTC, milliseconds, unless the owner gave it otherwise.
    pub acquired_at: String,
    /// Free text, what the lock is held for. Left out of the file if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op_id: String,
}

/// Where the metadata of the lock file `lock_path` is: beside it, in `<name>.meta.json`. For a name that leaves no room
/// for that, in `=<SHA-256 of the name>.meta.json`.
///
/// ```
/// assert_eq!(lockstead_flock::metadata_path("/run/x.lock").to_str(), Some("/run/x.lock.meta.json"));
/// ```
pub fn metadata_path(lock_path: impl AsRef<Path>) -> PathBuf {
    let lock_path = lock_path.as_ref();
    lock_path.with_file_name(names::sidecar(lock_path.file_name().unwrap_or_default()))
}

/// What is known of the holder of the lock file `lock_path`. Empty if there is no file, or none that can be read as
/// metadata. Never blocks on what is no file, follows no symlink.
pub fn read_metadata(lock_path: impl AsRef<Path>) -> Metadata {
    read(&metadata_path(lock_path)).ok().and_then(|text| parse(&text).ok()).unwrap_or_default()
}

fn parse(text: &[u8]) -> serde_json::Result<Metadata> {
    // An object only: serde takes an array for a struct's fields in their order, too.
    let object: Map<String, Value> = serde_json::from_slice(text)?;
    serde_json::from_value(Value::Object(object))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

pub(crate) fn sidecar_name(spot: &Spot) -> OsString {
    names::sidecar(&spot.file_name)
}

pub(crate) fn temporary_name(spot: &Spot) -> OsString {
    names::temporary(&spot.file_name)
}

impl Owner {
    pub(crate) fn into_metadata(self) -> Metadata {
        Metadata {
            owner_pid: if self.pid == 0 { std::process::id() } else { self.pid },
            owner_id: self.id,
            owner_kind: self.kind,
            acquired_at: if self.acquired_at.is_empty() { rfc3339_now() } else { self.acquired_at },
            op_id: self.op_id,
        }
    }
}

impl Metadata {
    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        Ok(json)
    }
}

/// For people: `pid 4711 (cli deploy-7), since 2026-01-31T12:00:00.000Z`. What others wrote cannot steer a terminal.
impl fmt::Display for Metadata {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner_pid {
            0 => write!(out, "an unknown process")?,
            pid => write!(out, "pid {pid}")?,
        }
        let who = format!("{} {}", self.owner_kind, self.owner_id);
        if !who.trim().is_empty() {
            write!(out, " ({})", who.trim().escape_debug())?;
        }
        if !self.acquired_at.is_empty() {
            write!(out, ", since {}", self.acquired_at.escape_debug())?;
        }
        Ok(())
    }
}

fn rfc3339_now() -> String {
    let now = OffsetDateTime::now_utc();
    let (hour, minute, second, ms) = now.time().as_hms_milli();
    let (year, month, day) = now.to_calendar_date();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_read(text: &str, expected: &Metadata) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(metadata_path(&path), text).unwrap();
        assert_eq!(read_metadata(&path), *expected, "{text}");
    }

    #[test]
    fn empty_fields_are_filled_in() {
        let filled = Owner::default().into_metadata();
        assert_eq!((filled.owner_pid, filled.owner_id.as_str()), (std::process::id(), ""));
        let format = time::format_description::well_known::Rfc3339;
        assert_eq!(OffsetDateTime::now_utc().format(&format).unwrap()[..16], filled.acquired_at[..16]);
        let given = Owner { pid: 7, acquired_at: "then".into(), ..Owner::default() }.into_metadata();
        assert_eq!((given.owner_pid, given.acquired_at.as_str()), (7, "then"));
    }

    #[test]
    fn an_empty_op_id_is_left_out_of_the_file() {
        let mut metadata = Owner { pid: 7, acquired_at: "then".into(), ..Owner::default() }.into_metadata();
        let json = |metadata: &Metadata| String::from_utf8(metadata.to_json().unwrap()).unwrap();
        let bare = json(&metadata);
        assert_eq!(
            bare.split_whitespace().collect::<String>(),
            r#"{"owner_pid":7,"owner_id":"","owner_kind":"","acquired_at":"then"}"#
        );
        metadata.op_id = "o".into();
        assert!(json(&metadata).contains(r#""op_id": "o""#));
        check_read(&json(&metadata), &metadata);
    }

    #[test]
    fn what_is_no_metadata_reads_as_empty() {
        for text in ["", "{", "null", "[1]", "{\"owner_pid\":\"x\"}", "{\"owner_pid\":-1}", "{\"owner_pid\":7", "\0\0"]
        {
            check_read(text, &Metadata::default());
        }
        check_read(&format!("{}{{}}", " ".repeat(70_000)), &Metadata::default());
        check_read("{\"owner_pid\":7,\"later\":1}", &Metadata { owner_pid: 7, ..Metadata::default() });
        assert!(read_metadata("/").is_empty() && read_metadata("").is_empty() && read_metadata("a\0b").is_empty());
    }

    #[test]
    fn what_is_no_file_reads_as_empty_without_a_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let sidecar = metadata_path(&path);
        std::fs::create_dir(&sidecar).unwrap();
        assert!(read_metadata(&path).is_empty(), "a directory");
        std::fs::remove_dir(&sidecar).unwrap();
        std::fs::write(dir.path().join("target"), "{\"owner_pid\":7}").unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), &sidecar).unwrap();
        assert!(read_metadata(&path).is_empty(), "a symlink");
        std::fs::remove_file(&sidecar).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &sidecar, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(read_metadata(&path).is_empty(), "a pipe without a writer");
    }

    #[test]
    fn a_holder_is_shown_in_one_line_without_control_characters() {
        let check = |metadata: Metadata, expected: &str| assert_eq!(metadata.to_string(), expected);
        check(Metadata::default(), "an unknown process");
        let id = "deploy\u{1b}[2J\n".to_owned();
        let metadata = Metadata { owner_pid: 7, owner_id: id, acquired_at: "t".into(), ..Metadata::default() };
        check(metadata, "pid 7 (deploy\\u{1b}[2J), since t");
    }
}
