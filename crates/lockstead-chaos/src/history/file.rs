//! Histories as JSON lines: the header, then one record a line.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde::Serialize;
use serde::de::Error as _;
use thiserror::Error;

use super::{Answer, FORMAT, Header, History, Record};

/// Why a file is no history.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It can't be read.
    #[error("the history cannot be read")]
    Io(#[from] io::Error),
    /// A line is not what it should be.
    #[error("line {line} of the history: {why}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        why: serde_json::Error,
    },
    /// There is no first line.
    #[error("the history is empty")]
    Empty,
    /// It was written by another version.
    #[error("the history has format {found}, this program reads {FORMAT}")]
    Format {
        /// The format that its header names.
        found: u32,
    },
}

impl History {
    /// Reads a history from a file.
    ///
    /// # Errors
    /// When the file can't be read or is no history; see [`ReadError`].
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::read_from(BufReader::new(File::open(path)?))
    }

    /// Reads a history from anything that has lines. Empty lines are skipped.
    ///
    /// # Errors
    /// As [`History::read`].
    pub fn read_from(source: impl BufRead) -> Result<Self, ReadError> {
        let mut lines = source.lines().enumerate();
        let (_, first) = lines.next().ok_or(ReadError::Empty)?;
        let header: Header = serde_json::from_str(&first?).map_err(|why| ReadError::Line { line: 1, why })?;
        if header.format != FORMAT {
            return Err(ReadError::Format { found: header.format });
        }
        let (mut history, mut ids) = (Self::new(header), HashSet::new());
        for (index, line) in lines {
            let line = line?;
            if !line.trim().is_empty() {
                let record = record(&line, &mut ids).map_err(|why| ReadError::Line { line: index + 1, why })?;
                history.push(record);
            }
        }
        Ok(history)
    }

    /// Writes the whole history to a file, which replaces what a run has written so far only once it is complete.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let whole = path.with_extension("whole");
        let mut writer = Writer::create(&whole, &self.header)?;
        for call in &self.calls {
            writer.append(&call.clone().into())?;
        }
        for fault in &self.faults {
            writer.append(&fault.clone().into())?;
        }
        for leaderless in &self.leaderless {
            writer.append(&(*leaderless).into())?;
        }
        for write in &self.writes {
            writer.append(&write.clone().into())?;
        }
        writer.finish()?;
        fs::rename(whole, path)
    }
}

/// Reads a record. A call that nobody can have seen is none: the checker would pass over it in silence.
fn record(line: &str, ids: &mut HashSet<u64>) -> serde_json::Result<Record> {
    let record = serde_json::from_str(line)?;
    let Record::Call(call) = &record else { return Ok(record) };
    let is_unknown = matches!(call.answer, Answer::Unknown { .. });
    let wrong = match call.received_us {
        _ if !ids.insert(call.id) => "the id of an earlier call",
        None if !is_unknown => "an answer that was never received",
        Some(received_us) if received_us < call.sent_us => "received before it was sent",
        _ if !call.answer.fits(&call.op) => "an answer to something else than what was asked",
        _ => return Ok(record),
    };
    Err(serde_json::Error::custom(wrong))
}

/// Writes a history while the run goes on. Whole lines are handed on at a time, so that what a run leaves that is
/// killed can be read, but for its last moments.
#[derive(Debug)]
pub struct Writer<W: io::Write = File> {
    sink: BufWriter<W>,
}

impl Writer {
    /// Begins a file with its header; an older file of that name is replaced.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        Self::new(File::create(path)?, header)
    }
}

impl<W: io::Write> Writer<W> {
    /// Begins a history in `sink` with its header.
    ///
    /// # Errors
    /// When the sink refuses.
    pub fn new(sink: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self { sink: BufWriter::new(sink) };
        writer.line(header)?;
        Ok(writer)
    }

    /// Adds a record. It may lie in memory until [`Writer::finish`].
    ///
    /// # Errors
    /// When the sink refuses.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        self.line(record)
    }

    /// Hands everything on.
    ///
    /// # Errors
    /// When the sink refuses.
    pub fn finish(mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        // In one piece: the buffer never parts it.
        self.sink.write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Fault, Leaderless, Lost, Op, Proof, Write};
    use super::*;

    fn call(id: u64, op: Op, answer: Answer) -> Call {
        let lock = "a".to_owned();
        Call { id, client: 2, node: 3, lock, op, sent_us: 4, received_us: Some(5), answer, excuse: None }
    }

    fn text_of(history: &History, records: &[Record]) -> String {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &history.header).unwrap();
        for record in records {
            writer.append(record).unwrap();
        }
        writer.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let acquire = Op::Acquire {
            ttl_ms: 1_000,
            wait_ms: 0,
            owner: Some("o".to_owned()),
            request_id: Some("r".to_owned()),
            queued_ms: 0,
        };
        let records = [
            call(1, acquire, Answer::Held { holders: vec![7], queue_len: 0 }).into(),
            call(2, Op::Get, Answer::refused(503, "no_leader")).into(),
            call(
                3,
                Op::Renew { by: Proof::Owner("o".to_owned()), ttl_ms: 5 },
                Answer::Unknown { why: Lost::Abandoned { at_us: 5 } },
            )
            .into(),
            Fault {
                kind: "kill".to_owned(),
                target: "node 1".to_owned(),
                begin_us: 1,
                end_us: 2,
                took_effect: true,
                detail: String::new(),
            }
            .into(),
            Leaderless { begin_us: 1, end_us: 2 }.into(),
            Write { client: 1, lock: "a".to_owned(), fence: 7, at_us: 9, accepted: true }.into(),
        ];
        let mut history = History::new(Header::new(7, 3));
        records.iter().cloned().for_each(|record| history.push(record));
        let text = text_of(&history, &records);
        assert_eq!(History::read_from(text.as_bytes()).unwrap(), history);
        assert_eq!(text.lines().count(), 7);
    }

    #[test]
    fn what_a_killed_run_leaves_is_whole_lines() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &Header::new(7, 3)).unwrap();
        for id in 0..1_000 {
            writer.append(&call(id, Op::Get, Answer::NotHeld).into()).unwrap();
        }
        // Neither finished nor dropped: what was not handed on is lost.
        std::mem::forget(writer);
        let history = History::read_from(&bytes[..]).unwrap();
        assert!(history.calls.len() > 900, "{}", history.calls.len());
    }

    #[test]
    fn a_wrong_line_is_named_by_its_number() {
        let mut text = text_of(&History::default(), &[]);
        text.push_str("\n{\"record\":\"call\"}\n");
        let error = History::read_from(text.as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Line { line: 3, .. }), "{error}");
        assert!(matches!(History::read_from(&b""[..]), Err(ReadError::Empty)));
    }

    #[test]
    fn a_call_that_nobody_can_have_seen_is_refused() {
        let seen = call(1, Op::Get, Answer::NotHeld);
        let is_read = |calls: &[&Call]| {
            let records: Vec<Record> = calls.iter().map(|call| Record::Call((*call).clone())).collect();
            History::read_from(text_of(&History::default(), &records).as_bytes()).is_ok()
        };
        assert!(is_read(&[&seen, &Call { id: 2, ..seen.clone() }]));
        assert!(!is_read(&[&seen, &seen]));
        assert!(!is_read(&[&Call { received_us: None, ..seen.clone() }]));
        assert!(!is_read(&[&Call { sent_us: 6, ..seen.clone() }]));
        assert!(!is_read(&[&Call { answer: Answer::Released, ..seen }]));
        assert!(is_read(&[&Call { received_us: None, ..call(1, Op::Get, Answer::Unknown { why: Lost::RunEnded }) }]));
    }

    #[test]
    fn another_format_is_refused() {
        let header = Header { format: 2, ..Header::default() };
        let text = text_of(&History::new(header), &[]);
        assert!(matches!(History::read_from(text.as_bytes()), Err(ReadError::Format { found: 2 })));
    }

    #[test]
    fn only_a_sure_refusal_counts_as_one() {
        let is_sure = |status, code| matches!(Answer::refused(status, code), Answer::Refused { .. });
        assert!(is_sure(429, "limit_exceeded") && is_sure(503, "no_leader") && is_sure(503, "catching_up"));
        assert!(!is_sure(503, "outcome_unknown") && !is_sure(500, "internal") && !is_sure(503, "something_new"));
    }
}
