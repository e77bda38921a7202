//! The log's place in sled: rolling trees of entries, and one tree of facts beside them.
//!
//! Tree `log-<first index, 16 hex digits>` holds the entries from its first index on, [`TREE_ENTRIES`] at most. A purge
//! drops whole trees; what it leaves below `last_purged` in the first tree is never read.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::change::{Change, Checkpoint};
use super::codec::{self, Assembler, EncodedEntry, Why};
use super::disk::io_error;
use crate::types::{Entry, LogId, Vote};

/// Entries of one tree.
const TREE_ENTRIES: u64 = 10_000;
const FACTS: &str = "facts";
const PURGED: &str = "purged";
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const CHECKPOINT: &str = "checkpoint";

/// The facts beside the log.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) purged: Option<LogId>,
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    /// None before there was a journal.
    pub(super) checkpoint: Option<Checkpoint>,
}

/// Handles of one database. Written by one thread, read by any.
#[derive(Clone)]
pub(super) struct Trees {
    db: sled::Db,
    facts: sled::Tree,
    logs: Arc<Mutex<BTreeMap<u64, sled::Tree>>>,
}

impl Trees {
    pub(super) fn open(db: sled::Db) -> sled::Result<Self> {
        let mut logs = BTreeMap::new();
        for name in db.tree_names() {
            if let Some(first) = first_index(&name) {
                logs.insert(first, db.open_tree(&name)?);
            }
        }
        Ok(Self { facts: db.open_tree(FACTS)?, logs: Arc::new(Mutex::new(logs)), db })
    }

    /// Does what the changes say. Doing it again, from the first, ends in the same.
    pub(super) fn apply(&self, changes: Vec<Change>) -> sled::Result<()> {
        let mut entries = Vec::new();
        for change in changes {
            match change {
                Change::Entry(entry) => entries.push(entry),
                Change::Vote(vote) => self.put(VOTE, &vote)?,
                Change::Purge { upto, .. } => self.put(PURGED, &upto)?,
                Change::Truncate { from, .. } => {
                    self.insert(std::mem::take(&mut entries))?;
                    self.remove_from(from)?;
                }
            }
        }
        self.insert(entries)
    }

    fn insert(&self, entries: Vec<EncodedEntry>) -> sled::Result<()> {
        let mut rest = entries.into_iter().peekable();
        while let Some(first) = rest.peek().map(|entry| tree_of(entry.log_id.index())) {
            let now = std::iter::from_fn(|| rest.next_if(|entry| tree_of(entry.log_id.index()) == first));
            insert_into(&self.tree(first)?, now.flat_map(|entry| entry.parts).collect())?;
        }
        Ok(())
    }

    /// Removes the entries from `from` on, the last one first, so that what a crash leaves has no hole.
    fn remove_from(&self, from: u64) -> sled::Result<()> {
        for (_, tree) in self.trees().into_iter().rev() {
            while let Some((key, _)) = tree.last()? {
                if *key < codec::first_key(from)[..] {
                    return Ok(());
                }
                tree.remove(&key)?;
            }
        }
        Ok(())
    }

    /// Drops the trees that hold nothing above `purged`, which has to be durable by now.
    pub(super) fn drop_purged(&self, purged: u64) -> sled::Result<()> {
        for (first, _) in self.trees() {
            if first + (TREE_ENTRIES - 1) > purged {
                break;
            }
            self.lock().remove(&first);
            self.db.drop_tree(name_of(first))?;
        }
        Ok(())
    }

    /// Gives every entry from `from` on, in order, to `take`.
    pub(super) fn scan(&self, from: u64, mut take: impl FnMut(Entry) -> Result<(), Why>) -> Result<(), ScanError> {
        for (first, tree) in self.trees() {
            let damaged = |why: Why| ScanError::Damaged(format!("{why} (tree {})", name_of(first)));
            let mut assembler = Assembler::default();
            for item in tree.range(codec::first_key(from)..) {
                let (key, value) = item.map_err(ScanError::Sled)?;
                if tree_of(codec::index_of(&key).map_err(damaged)?) != first {
                    return Err(damaged("an entry lies in the wrong tree".to_owned()));
                }
                if let Some(entry) = assembler.push(&key, &value).map_err(damaged)? {
                    take(entry).map_err(damaged)?;
                }
            }
            assembler.finish().map_err(damaged)?;
        }
        Ok(())
    }

    /// The entries from `start` up to and without `end`, as far as they lie here.
    pub(super) fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (_, tree) in self.trees_of(start, end) {
            let mut assembler = Assembler::default();
            for item in tree.range(codec::first_key(start)..codec::first_key(end)) {
                let (key, value) = item.map_err(io_error)?;
                entries.extend(assembler.push(&key, &value).map_err(invalid)?);
            }
            assembler.finish().map_err(invalid)?;
        }
        Ok(entries)
    }

    pub(super) fn facts(&self) -> Result<Facts, ScanError> {
        Ok(Facts {
            purged: self.fact(PURGED)?,
            vote: self.fact(VOTE)?,
            committed: self.fact(COMMITTED)?,
            checkpoint: self.fact(CHECKPOINT)?,
        })
    }

    pub(super) fn put_checkpoint(&self, checkpoint: &Checkpoint) -> sled::Result<()> {
        self.put(CHECKPOINT, checkpoint)
    }

    pub(super) fn put_committed(&self, committed: &LogId) -> sled::Result<()> {
        self.put(COMMITTED, committed)
    }

    fn put<T: Serialize>(&self, name: &str, fact: &T) -> sled::Result<()> {
        self.facts.insert(name, codec::encode_fact(fact)).map(|_| ())
    }

    fn fact<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ScanError> {
        let Some(bytes) = self.facts.get(name).map_err(ScanError::Sled)? else { return Ok(None) };
        codec::decode_fact(&bytes).map(Some).map_err(|why| ScanError::Damaged(format!("{name}: {why}")))
    }

    fn tree(&self, first: u64) -> sled::Result<sled::Tree> {
        if let Some(tree) = self.lock().get(&first) {
            return Ok(tree.clone());
        }
        let tree = self.db.open_tree(name_of(first))?;
        self.lock().insert(first, tree.clone());
        Ok(tree)
    }

    fn trees(&self) -> Vec<(u64, sled::Tree)> {
        self.lock().iter().map(|(first, tree)| (*first, tree.clone())).collect()
    }

    fn trees_of(&self, start: u64, end: u64) -> Vec<(u64, sled::Tree)> {
        self.lock().range(tree_of(start)..end).map(|(first, tree)| (*first, tree.clone())).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, sled::Tree>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the database could not be read.
#[derive(Debug)]
pub(super) enum ScanError {
    /// What lies there is not what was written.
    Damaged(Why),
    /// sled could not read it.
    Sled(sled::Error),
}

fn insert_into(tree: &sled::Tree, mut values: Vec<(Vec<u8>, Vec<u8>)>) -> sled::Result<()> {
    if values.len() == 1 {
        let (key, value) = values.remove(0);
        return tree.insert(key, value).map(|_| ());
    }
    // One atomic batch: a crash leaves no entry without some of its parts.
    let mut batch = sled::Batch::default();
    for (key, value) in values {
        batch.insert(key, value);
    }
    tree.apply_batch(batch)
}

fn tree_of(index: u64) -> u64 {
    index - index % TREE_ENTRIES
}

fn name_of(first: u64) -> String {
    format!("log-{first:016x}")
}

fn first_index(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name).ok()?.strip_prefix("log-")?;
    u64::from_str_radix(digits, 16).ok()
}

fn invalid(why: Why) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
