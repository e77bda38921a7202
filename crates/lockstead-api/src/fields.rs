//! Reads a JSON object field by field, so that each error can name its field.
//!
//! One pass over the body finds where each value begins and ends; each value is then read by what its field allows. The
//! pass is `serde_json`'s skipping of values, which keeps no stack of calls: nesting of any depth is safe.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{ErrorBody, ErrorCode};

/// The values of the fields `NAMES[0]`, `NAMES[1]`, … as they stand in the body. `null` counts as missing.
pub(crate) type Values<'a, const N: usize> = [Option<Value<'a>>; N];

/// The JSON of one value: complete and well formed, without blanks around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a>(&'a str);

/// Splits a body into the values of its fields.
///
/// # Errors
/// `invalid_json` unless it is one JSON object in UTF-8; `invalid_field` if it has a field that is not in `names`.
pub(crate) fn split<'a, const N: usize>(body: &'a [u8], names: &[&str; N]) -> Result<Values<'a, N>, ErrorBody> {
    let text = std::str::from_utf8(body).map_err(|error| not_utf8(&error))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let object = deserializer.deserialize_map(ObjectVisitor { names }).map_err(|error| not_json(&error))?;
    deserializer.end().map_err(|error| not_json(&error))?;
    match object.problem {
        None => Ok(object.values),
        Some(problem) => Err(problem),
    }
}

fn not_utf8(error: &std::str::Utf8Error) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidJson, format!("the body is not UTF-8 from byte {} on", error.valid_up_to()))
}

fn not_json(error: &serde_json::Error) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidJson, format!("the body must be one JSON object: {error}"))
}

fn unknown_field(name: &str, names: &[&str]) -> ErrorBody {
    let mut body = ErrorBody::new(ErrorCode::InvalidField, format!("unknown field {name:?}"));
    body.error.field = Some(name.to_owned());
    body.error.allowed = Some(names.join(", "));
    body
}

fn repeated_field(name: &str) -> ErrorBody {
    let mut body = ErrorBody::new(ErrorCode::InvalidJson, format!("the field {name:?} stands twice"));
    body.error.field = Some(name.to_owned());
    body
}

struct Object<'a, const N: usize> {
    values: Values<'a, N>,
    /// The first field that must not be there. Kept until the end of the body, since broken JSON comes first.
    problem: Option<ErrorBody>,
}

struct ObjectVisitor<'n, const N: usize> {
    names: &'n [&'n str; N],
}

impl<'de, const N: usize> Visitor<'de> for ObjectVisitor<'_, N> {
    type Value = Object<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; N];
        let mut seen = [false; N];
        let mut problem = None;
        while let Some(key) = map.next_key_seed(KeySeed)? {
            let Some(at) = self.names.iter().position(|name| *name == key) else {
                map.next_value::<IgnoredAny>()?;
                problem.get_or_insert_with(|| unknown_field(&key, self.names));
                continue;
            };
            if std::mem::replace(&mut seen[at], true) {
                problem.get_or_insert_with(|| repeated_field(&key));
            }
            let raw = map.next_value::<&'de RawValue>()?.get();
            values[at] = (raw != "null").then_some(Value(raw));
        }
        Ok(Object { values, problem })
    }
}

/// A key, borrowed from the body unless it has escapes.
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

impl<'a> Value<'a> {
    /// The text, if it is one in valid Unicode.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if inner.contains('\\') {
            serde_json::from_str(self.0).ok().map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(inner))
        }
    }

    /// The integer, if it is written as one: no fraction, no exponent, no quotes. What is too large for 64 bits is cut
    /// to the nearest that fits, so that it stays on its side of every bound.
    pub(crate) fn integer(self) -> Option<i64> {
        let digits = self.0.strip_prefix('-').unwrap_or(self.0);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let nearest = if digits.len() < self.0.len() { i64::MIN } else { i64::MAX };
        Some(self.0.parse().unwrap_or(nearest))
    }

    /// The pairs, if it is an object of texts; a key may stand twice.
    pub(crate) fn text_pairs(self) -> Option<Vec<(String, String)>> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Vec<(String, String)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        serde_json::Deserializer::from_str(self.0).deserialize_map(PairsVisitor).ok()
    }
}
