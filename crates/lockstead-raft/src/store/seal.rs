//! Version and checksum of what lies on disk, and why bytes are refused.

use std::path::PathBuf;

use crate::OpenError;

/// Why bytes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Why {
    /// They are not what was written.
    #[error("{0}")]
    Damaged(String),
    /// A newer version of this program wrote them.
    #[error("{0}")]
    Newer(String),
}

impl Why {
    /// The same, said at more length.
    pub(super) fn map(self, more: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Damaged(why) => Self::Damaged(more(why)),
            Self::Newer(why) => Self::Newer(more(why)),
        }
    }

    /// What that means for a file.
    pub(super) fn refuse(self, file: PathBuf) -> OpenError {
        match self {
            Self::Damaged(why) => OpenError::Damaged { file, why },
            Self::Newer(why) => OpenError::Newer { file, why },
        }
    }
}

impl From<String> for Why {
    fn from(why: String) -> Self {
        Self::Damaged(why)
    }
}

impl From<&str> for Why {
    fn from(why: &str) -> Self {
        Self::Damaged(why.to_owned())
    }
}

/// Where a format has its version, one byte, and behind it the CRC-32 of all its other bytes, four.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal {
    /// The version that this build knows.
    pub(super) version: u8,
    pub(super) version_at: usize,
    pub(super) crc_at: usize,
}

impl Seal {
    /// Puts version and checksum in their places.
    pub(super) fn put(self, bytes: &mut [u8]) {
        bytes[self.version_at] = self.version;
        let crc = self.crc(bytes);
        bytes[self.crc_at..self.crc_at + 4].copy_from_slice(&crc);
    }

    /// Judges bytes. The version comes first, as another one may have its checksum elsewhere; but if the checksum is
    /// right for the version that this build knows, only the version was damaged.
    pub(super) fn check(self, bytes: &[u8]) -> Result<(), Why> {
        let found = bytes.get(self.version_at).copied().unwrap_or_default();
        let said = bytes.get(self.crc_at..self.crc_at + 4);
        match said.is_some_and(|said| *said == self.crc(bytes)) {
            true if found == self.version => Ok(()),
            false if found > self.version => Err(Why::Newer(newer(found.into(), self.version.into()))),
            _ => Err("its checksum is wrong".into()),
        }
    }

    fn crc(self, bytes: &[u8]) -> [u8; 4] {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..self.version_at]);
        hasher.update(&[self.version]);
        hasher.update(&bytes[self.version_at + 1..self.crc_at]);
        hasher.update(&bytes[self.crc_at + 4..]);
        hasher.finalize().to_le_bytes()
    }
}

/// The words for what a newer version of this program wrote.
pub(crate) fn newer(found: u32, known: u32) -> String {
    format!(
        "it is of version {found}, and this build knows version {known} only: a newer version of Lockstead wrote it"
    )
}
