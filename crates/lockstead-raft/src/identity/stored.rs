//! The file `identity.json`: what it holds, and how it is read and written.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use lockstead_core::{ClusterId, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use super::{FILE, HOME_PREFIX, LOG_DIR, SNAPSHOT_DIR, is_used, sync_dir};
use crate::{OpenError, store};

pub(super) const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) version: u32,
    pub(super) cluster_id: Option<String>,
    pub(super) node_id: NodeId,
    pub(super) incarnation: String,
    pub(super) starts: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) home: Option<String>,
    #[serde(flatten)]
    pub(super) part: Part,
}

/// How far this node has come in its lineage.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Part {
    /// It founded its lineage, or was about to.
    pub(super) founder: bool,
    /// It joins as a voter and was not promoted yet.
    pub(super) joining: bool,
    /// Its log holds a membership, and so is never empty again.
    pub(super) has_log: bool,
    /// Checksum of the backup with which its lineage began, or is about to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restored_from: Option<u32>,
}

impl Stored {
    pub(super) fn new(node_id: NodeId) -> io::Result<Self> {
        let incarnation =
            Incarnation(getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?).to_string();
        let part = Part::default();
        Ok(Self { version: VERSION, cluster_id: None, node_id, incarnation, starts: 0, home: None, part })
    }

    pub(super) fn parse(file: &Path, text: &[u8]) -> Result<Self, OpenError> {
        let file = file.to_owned();
        match Self::version(text) {
            Ok(newer) if newer > VERSION => Err(OpenError::Newer { file, why: store::newer(newer, VERSION) }),
            Ok(VERSION) => Self::checked(text).map_err(|why| OpenError::Damaged { file, why }),
            Ok(never) => Err(OpenError::Damaged { file, why: format!("it is of version {never}") }),
            Err(why) => Err(OpenError::Damaged { file, why }),
        }
    }

    /// Another version may have other fields but for this one.
    fn version(text: &[u8]) -> Result<u32, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        serde_json::from_slice(text).map(|Versioned { version }| version).map_err(|error| error.to_string())
    }

    fn checked(text: &[u8]) -> Result<Self, String> {
        let stored: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        stored.incarnation()?;
        stored.cluster_id()?;
        Ok(stored)
    }

    pub(super) fn incarnation(&self) -> Result<Incarnation, String> {
        self.incarnation.parse().map_err(|error| format!("incarnation: {error}"))
    }

    pub(super) fn cluster_id(&self) -> Result<Option<ClusterId>, String> {
        let cluster = self.cluster_id.as_ref().map(|text| text.parse()).transpose();
        cluster.map_err(|error| format!("cluster_id: {error}"))
    }
}

pub(super) fn read(data_dir: &Path, node_id: NodeId) -> Result<Stored, OpenError> {
    let file = data_dir.join(FILE);
    let stored = match std::fs::read(&file) {
        Ok(text) => Stored::parse(&file, &text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return first(data_dir, node_id),
        Err(source) => return Err(OpenError::Io { path: file, source }),
    };
    if stored.node_id == node_id {
        Ok(stored)
    } else {
        Err(OpenError::OtherNode { path: data_dir.to_owned(), found: stored.node_id, asked: node_id })
    }
}

/// A log without an identity is a damaged directory, not a new one.
fn first(data_dir: &Path, node_id: NodeId) -> Result<Stored, OpenError> {
    let io = |source| OpenError::Io { path: data_dir.to_owned(), source };
    let mut homes = vec![data_dir.to_owned()];
    for item in std::fs::read_dir(data_dir).map_err(io)? {
        let item = item.map_err(io)?;
        if item.file_name().to_string_lossy().starts_with(HOME_PREFIX) {
            homes.push(item.path());
        }
    }
    for dir in homes.iter().flat_map(|home| [home.join(LOG_DIR), home.join(SNAPSHOT_DIR)]) {
        if is_used(&dir).map_err(io)? {
            let why = format!("it is missing, but {} is not empty", dir.display());
            return Err(OpenError::Damaged { file: data_dir.join(FILE), why });
        }
    }
    Stored::new(node_id).map_err(io)
}

pub(super) fn write(data_dir: &Path, stored: &Stored) -> io::Result<()> {
    let temporary = data_dir.join("identity.json.tmp");
    let mut file = File::create(&temporary)?;
    serde_json::to_writer_pretty(&mut file, stored)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&temporary, data_dir.join(FILE))?;
    sync_dir(data_dir)
}
