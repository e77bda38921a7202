//! Texts that callers choose, each with its bounds kept by a private field.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest lock name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 1_024;
/// The longest owner, in bytes of UTF-8.
pub const OWNER_BYTES_MAX: usize = 256;
/// The longest namespace name, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// The shortest request id, in bytes of UTF-8.
pub const REQUEST_ID_BYTES_MIN: usize = 16;
/// The longest request id, in bytes of UTF-8.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// The most that the keys and values of a hold's metadata may take together, in bytes of UTF-8.
pub const METADATA_BYTES_MAX: usize = 4_096;

/// A text outside the bounds of what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {allowed}")]
pub struct NameError {
    /// What the text should have been, as in "a lock name".
    pub what: &'static str,
    /// What is allowed, as in "1 to 1024 bytes of UTF-8".
    pub allowed: &'static str,
}

macro_rules! bounded_text {
    ($(#[$doc:meta])* $type:ident, $what:literal, $allowed:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks the bounds.
            ///
            /// # Errors
            /// [`NameError`] with what is allowed.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                Self::check(text)?;
                Ok(Self(Arc::from(text)))
            }

            fn check(text: &str) -> Result<(), NameError> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(()) } else { Err(NameError { what: $what, allowed: $allowed }) }
            }

            /// The text, byte for byte as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        as_text!($type, $type::parse);
    };
}

/// Reads and writes a type as its text, without a copy on the way: a log is replayed at start.
macro_rules! as_text {
    ($type:ident, $parse:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text($parse))
            }
        }
    };
}

/// Parses the text that it visits.
struct Text<T>(fn(&str) -> Result<T, NameError>);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.0(text).map_err(E::custom)
    }
}

bounded_text!(
    /// The name of a lock: 1 to 1,024 bytes of UTF-8, otherwise unrestricted, compared byte by byte.
    LockName,
    "a lock name",
    "1 to 1024 bytes of UTF-8",
    |text| (1..=NAME_BYTES_MAX).contains(&text.len())
);
bounded_text!(
    /// A stable name that a caller chose for itself: 1 to 256 bytes of UTF-8.
    OwnerName,
    "an owner",
    "1 to 256 bytes of UTF-8",
    |text| (1..=OWNER_BYTES_MAX).contains(&text.len())
);
bounded_text!(
    /// The name of a namespace: 1 to 64 of `a-z`, `0-9`, `.`, `_` and `-`.
    NamespaceName,
    "a namespace",
    "1 to 64 of a-z, 0-9, '.', '_' and '-'",
    |text| (1..=NAMESPACE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
);
bounded_text!(
    /// A secret by which a retry finds the request that it repeats: 16 to 128 bytes of UTF-8.
    RequestId,
    "a request id",
    "16 to 128 bytes of UTF-8",
    |text| (REQUEST_ID_BYTES_MIN..=REQUEST_ID_BYTES_MAX).contains(&text.len())
);

macro_rules! show_text {
    ($($type:ident),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }
    )*};
}
show_text!(LockName, OwnerName, NamespaceName);

/// A secret is not for logs.
impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestId(..)")
    }
}

impl NamespaceName {
    /// The namespace of a request that names none.
    #[must_use]
    pub fn default_namespace() -> Self {
        Self(Arc::from("default"))
    }
}

/// A lock's full identity: namespace and name in one shared text, `namespace NUL name`.
///
/// A namespace cannot contain NUL, so the first one ends it, whatever the name holds.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey(Arc<str>);

impl LockKey {
    /// The lock `name` of `namespace`.
    #[must_use]
    pub fn new(namespace: &NamespaceName, name: &LockName) -> Self {
        Self(Arc::from(format!("{}\0{}", namespace.as_str(), name.as_str())))
    }

    /// The lock `name` of the namespace `default`.
    #[must_use]
    pub fn in_default(name: &LockName) -> Self {
        Self(Arc::from(format!("default\0{}", name.as_str())))
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.split().0
    }

    /// The name within its namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.split().1
    }

    /// Reads `namespace NUL name`.
    fn parse(text: &str) -> Result<Self, NameError> {
        let (namespace, name) = text.split_once('\0').unwrap_or(("", text));
        NamespaceName::check(namespace)?;
        LockName::check(name)?;
        Ok(Self(Arc::from(text)))
    }

    fn split(&self) -> (&str, &str) {
        self.0.split_once('\0').unwrap_or(("", &self.0))
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.namespace(), self.name())
    }
}

as_text!(LockKey, LockKey::parse);

/// Labels that a caller hangs on a hold, sorted by key: at most 4 KiB of keys and values together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, String)>", into = "Vec<(String, String)>")]
pub struct Metadata(Option<Arc<[(String, String)]>>);

impl Metadata {
    /// Sorts and checks the labels.
    ///
    /// # Errors
    /// [`NameError`] past 4 KiB, or if a key stands twice.
    pub fn parse(mut labels: Vec<(String, String)>) -> Result<Self, NameError> {
        labels.sort();
        let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let repeated = labels.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if bytes > METADATA_BYTES_MAX || repeated {
            return Err(NameError {
                what: "metadata",
                allowed: "distinct keys, keys and values at most 4096 bytes together",
            });
        }
        // Most holds have none; no block of memory is spent to say so.
        Ok(Self((!labels.is_empty()).then(|| labels.into())))
    }

    /// The labels, sorted by key.
    #[must_use]
    pub fn labels(&self) -> &[(String, String)] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl TryFrom<Vec<(String, String)>> for Metadata {
    type Error = NameError;

    fn try_from(labels: Vec<(String, String)>) -> Result<Self, NameError> {
        Self::parse(labels)
    }
}

impl From<Metadata> for Vec<(String, String)> {
    fn from(metadata: Metadata) -> Self {
        metadata.labels().to_vec()
    }
}
