//! Histories as JSON lines: the header, then one record a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde::Serialize;
use thiserror::Error;

use super::{FORMAT, Header, History, Record};

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
        let mut history = Self::new(header);
        for (index, line) in lines {
            let line = line?;
            if !line.trim().is_empty() {
                let record = serde_json::from_str(&line).map_err(|why| ReadError::Line { line: index + 1, why })?;
                history.push(record);
            }
        }
        Ok(history)
    }

    /// Writes the whole history to a file.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut writer = Writer::create(path, &self.header)?;
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
        writer.finish()
    }
}

/// Writes a history while the run goes on.
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
        serde_json::to_writer(&mut self.sink, value)?;
        self.sink.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, Call, Fault, Leaderless, Lost, Op, Proof, Write};
    use super::*;

    fn call(op: Op, answer: Answer) -> Record {
        let lock = "a".to_owned();
        Call { id: 1, client: 2, node: 3, lock, op, sent_us: 4, received_us: Some(5), answer, excuse: None }.into()
    }

    fn text_of(history: &History, records: &[Record]) -> String {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &history.header).unwrap();
        records.iter().for_each(|record| writer.append(record).unwrap());
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
            call(acquire, Answer::Held { holders: vec![7], queue_len: 0 }),
            call(Op::Get, Answer::refused(503, "no_leader")),
            call(
                Op::Renew { by: Proof::Owner("o".to_owned()), ttl_ms: 5 },
                Answer::Unknown { why: Lost::Abandoned { at_us: 5 } },
            ),
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
    fn a_wrong_line_is_named_by_its_number() {
        let mut text = text_of(&History::default(), &[]);
        text.push_str("\n{\"record\":\"call\"}\n");
        let error = History::read_from(text.as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Line { line: 3, .. }), "{error}");
        assert!(matches!(History::read_from(&b""[..]), Err(ReadError::Empty)));
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
