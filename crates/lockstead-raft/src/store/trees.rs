//! The log's place in sled: rolling trees of entries, and one tree of facts beside them.
//!
//! Tree `log-<first index, 16 hex digits>` holds the entries from its first index on, up to that of the next tree. It
//! is full with [`TREE_ENTRIES`] entries or [`TREE_BYTES`], and the next entry begins another. A purge drops whole
//! trees; what it leaves below `last_purged` in the first tree is never read.
//!
//! Invariant: no entry lies in two trees. A tree begins only at an index from which on the tree before it holds
//! nothing.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::change::{Change, Checkpoint};
use super::codec::{self, Assembler, EncodedEntry};
use super::disk::io_error;
use super::seal::Why;
use crate::types::{Entry, LogId, Vote};

/// The most entries of one tree.
const TREE_ENTRIES: u64 = 10_000;
/// A tree whose values have so many bytes takes no further entry.
const TREE_BYTES: u64 = 4 << 20;
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
    logs: Arc<Mutex<BTreeMap<u64, Log>>>,
}

/// One tree of entries.
#[derive(Clone)]
struct Log {
    tree: sled::Tree,
    /// Bytes of its values: what was written twice counts twice. None until they are counted.
    bytes: Option<u64>,
}

/// Where entries go next.
struct Place {
    tree: sled::Tree,
    /// The first index of the tree.
    first: u64,
    /// Entries from here on go elsewhere.
    end: u64,
    bytes: u64,
    bytes_max: u64,
}

impl Place {
    /// Whether an entry goes here; if so, it counts.
    fn takes(&mut self, entry: &EncodedEntry) -> bool {
        let has_room = self.has_room_for(entry.log_id.index());
        if has_room {
            self.bytes += entry.bytes() as u64;
        }
        has_room
    }

    fn has_room_for(&self, index: u64) -> bool {
        index < self.end && self.bytes < self.bytes_max
    }
}

impl Trees {
    pub(super) fn open(db: sled::Db) -> sled::Result<Self> {
        let mut logs = BTreeMap::new();
        for name in db.tree_names() {
            if let Some(first) = first_index(&name) {
                logs.insert(first, Log { tree: db.open_tree(&name)?, bytes: None });
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
        while let Some(next) = rest.peek() {
            let mut place = self.place(next.log_id.index())?;
            let now = std::iter::from_fn(|| rest.next_if(|entry| place.takes(entry)));
            let values = now.flat_map(|entry| entry.parts).collect();
            insert_into(&place.tree, values)?;
            self.lock().insert(place.first, Log { tree: place.tree, bytes: Some(place.bytes) });
        }
        Ok(())
    }

    /// Where the entry at `index`, the next of the log, goes.
    fn place(&self, index: u64) -> sled::Result<Place> {
        let Some((first, log, next)) = self.tree_before(index) else { return self.begin(index, u64::MAX) };
        let bytes = log.bytes.map_or_else(|| count(&log.tree), Ok)?;
        let end = next.min(first.saturating_add(TREE_ENTRIES));
        let place = Place { tree: log.tree, first, end, bytes, bytes_max: TREE_BYTES };
        if place.has_room_for(index) {
            return Ok(place);
        }
        // A crash may leave entries of the journal here that are now written again: they stay in their tree.
        match last_index(&place.tree)? {
            Some(last) if last >= index => Ok(Place { end: next.min(last + 1), bytes_max: u64::MAX, ..place }),
            _ => self.begin(index, next),
        }
    }

    /// Begins a tree.
    fn begin(&self, first: u64, next: u64) -> sled::Result<Place> {
        let tree = self.db.open_tree(name_of(first))?;
        let end = next.min(first.saturating_add(TREE_ENTRIES));
        Ok(Place { tree, first, end, bytes: 0, bytes_max: TREE_BYTES })
    }

    /// Removes the entries from `from` on, the last one first, so that what a crash leaves has no hole.
    fn remove_from(&self, from: u64) -> sled::Result<()> {
        for (first, tree, _) in self.trees_of(0..u64::MAX).into_iter().rev() {
            while let Some((key, _)) = tree.last()? {
                if *key < codec::first_key(from)[..] {
                    return Ok(());
                }
                tree.remove(&key)?;
                self.lock().insert(first, Log { tree: tree.clone(), bytes: None });
            }
        }
        Ok(())
    }

    /// Drops the trees that hold nothing above `purged`, which has to be durable by now.
    pub(super) fn drop_purged(&self, purged: u64) -> sled::Result<()> {
        for (first, _, next) in self.trees_of(0..u64::MAX) {
            if next.min(first.saturating_add(TREE_ENTRIES)) > purged.saturating_add(1) {
                break;
            }
            self.lock().remove(&first);
            self.db.drop_tree(name_of(first))?;
        }
        Ok(())
    }

    /// Gives every entry from `from` on, in order, to `take`.
    pub(super) fn scan(&self, from: u64, mut take: impl FnMut(Entry) -> Result<(), Why>) -> Result<(), ScanError> {
        for (first, tree, next) in self.trees_of(0..u64::MAX) {
            let damaged = |why: Why| ScanError::Unreadable(why.map(|why| format!("{why} (tree {})", name_of(first))));
            let mut assembler = Assembler::default();
            for item in tree.range(codec::first_key(from)..) {
                let (key, value) = item.map_err(ScanError::Sled)?;
                if !(first..next).contains(&codec::index_of(&key).map_err(damaged)?) {
                    return Err(damaged("an entry lies in the wrong tree".into()));
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
        for (_, tree, _) in self.trees_of(start..end) {
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
        let fact = codec::decode_fact(&bytes).map(Some);
        fact.map_err(|why| ScanError::Unreadable(why.map(|why| format!("{name}: {why}"))))
    }

    /// The tree that an entry at `index` lies in, if it lies anywhere: its first index, the tree, and where the next
    /// begins.
    fn tree_before(&self, index: u64) -> Option<(u64, Log, u64)> {
        let logs = self.lock();
        let (first, log) = logs.range(..=index).next_back()?;
        let next = logs.range(index.saturating_add(1)..).next().map_or(u64::MAX, |(next, _)| *next);
        Some((*first, log.clone(), next))
    }

    /// The trees that entries at these indexes lie in, each with its first index and that of the next.
    fn trees_of(&self, indexes: Range<u64>) -> Vec<(u64, sled::Tree, u64)> {
        let logs = self.lock();
        let nexts = logs.keys().skip(1).copied().chain([u64::MAX]);
        let all = logs.iter().zip(nexts).map(|((first, log), next)| (*first, log.tree.clone(), next));
        all.filter(|(first, _, next)| *first < indexes.end && indexes.start < *next).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Log>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the database could not be read.
#[derive(Debug)]
pub(super) enum ScanError {
    /// What lies there cannot be understood.
    Unreadable(Why),
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

/// Bytes of a tree's values, as far as they matter.
fn count(tree: &sled::Tree) -> sled::Result<u64> {
    let mut bytes = 0;
    for value in tree.iter().values() {
        bytes += value?.len() as u64;
        if bytes >= TREE_BYTES {
            break;
        }
    }
    Ok(bytes)
}

/// The index of a tree's last entry; none too if its key is none of ours, which opening finds.
fn last_index(tree: &sled::Tree) -> sled::Result<Option<u64>> {
    Ok(tree.last()?.and_then(|(key, _)| codec::index_of(&key).ok()))
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
