//! The query of get: form-urlencoded, as `curl --data-urlencode` and browsers write it.

use std::fmt::Write;

use lockstead_core::{LockKey, LockName};

use crate::error::{ErrorBody, ErrorCode};

/// How fresh the answer to a read must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// No older than the request: confirmed by a quorum.
    #[default]
    Linearizable,
    /// What the answering node's own table says, however old.
    Stale,
}

/// The query of `GET /v1/locks/get`: `name`, and `consistency` = `linearizable` (the default) or `stale`.
///
/// The query is form-urlencoded: a space is `+` or `%20`, a plus is `%2B`, and every byte may be written as `%` and two
/// hex digits. A `%` without two hex digits is refused, never guessed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetQuery {
    /// The lock.
    pub name: LockName,
    /// How fresh the answer must be.
    pub consistency: Consistency,
}

impl GetQuery {
    /// Reads a query, without its `?`.
    ///
    /// # Errors
    /// What is wrong, as the body of a 400.
    pub fn parse(query: &str) -> Result<Self, ErrorBody> {
        let (mut name, mut consistency) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match decode(key).as_deref() {
                Some(b"name") => set_once(&mut name, "name", lock_name(value)?)?,
                Some(b"consistency") => set_once(&mut consistency, "consistency", parse_consistency(value)?)?,
                _ => return Err(unknown_key(key)),
            }
        }
        let name = name.ok_or_else(|| ErrorBody::field(ErrorCode::InvalidName, "name", "given (required)"))?;
        Ok(Self { name, consistency: consistency.unwrap_or_default() })
    }

    /// Writes the query, without its `?`.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut query = String::from("name=");
        for byte in self.name.as_str().bytes() {
            encode_byte(&mut query, byte);
        }
        match self.consistency {
            Consistency::Linearizable => {}
            Consistency::Stale => query.push_str("&consistency=stale"),
        }
        query
    }

    /// The lock's full identity.
    #[must_use]
    pub fn lock(&self) -> LockKey {
        LockKey::in_default(&self.name)
    }
}

fn encode_byte(query: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
        query.push(char::from(byte));
    } else {
        // Writing to a String does not fail.
        let _infallible = write!(query, "%{byte:02X}");
    }
}

fn set_once<T>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), ErrorBody> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ErrorBody::field(ErrorCode::InvalidField, key, "given once")),
    }
}

fn lock_name(value: &str) -> Result<LockName, ErrorBody> {
    let refused = |allowed| ErrorBody::field(ErrorCode::InvalidName, "name", allowed);
    let bytes = decode(value).ok_or_else(|| refused("form-urlencoded: after each % two hex digits"))?;
    let text = String::from_utf8(bytes).map_err(|_| refused("1 to 1024 bytes of UTF-8"))?;
    LockName::parse(&text).map_err(|error| refused(error.allowed))
}

fn parse_consistency(value: &str) -> Result<Consistency, ErrorBody> {
    match decode(value).as_deref() {
        Some(b"linearizable") => Ok(Consistency::Linearizable),
        Some(b"stale") => Ok(Consistency::Stale),
        _ => Err(ErrorBody::field(ErrorCode::InvalidConsistency, "consistency", "linearizable or stale")),
    }
}

fn unknown_key(key: &str) -> ErrorBody {
    let mut body = ErrorBody::new(ErrorCode::InvalidField, format!("unknown query field {key:?}"));
    body.error.field = Some(key.to_owned());
    body.error.allowed = Some("name, consistency".to_owned());
    body
}

/// The bytes that a form-urlencoded text stands for; `None` if a `%` is not followed by two hex digits.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (pair, tail) = rest.split_first_chunk::<2>()?;
                rest = tail;
                hex_digit(pair[0])? << 4 | hex_digit(pair[1])?
            }
            other => other,
        });
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(query: &str) -> String {
        GetQuery::parse(query).unwrap().name.as_str().to_owned()
    }

    fn check_refused(query: &str, code: ErrorCode, field: &str) {
        let error = GetQuery::parse(query).unwrap_err().error;
        assert_eq!((error.code, error.field.as_deref()), (code, Some(field)), "{query}");
    }

    #[test]
    fn a_name_comes_out_of_the_query_as_it_went_in_byte_for_byte() {
        for name in crate::parse::tests::FIELD_NAMES {
            let query = GetQuery { name: LockName::parse(name).unwrap(), consistency: Consistency::Stale };
            assert_eq!(GetQuery::parse(&query.encode()), Ok(query));
        }
    }

    #[test]
    fn the_query_is_form_urlencoded() {
        assert_eq!(name_of("name=a+b%20c%2Bd"), "a b c+d");
        assert_eq!(name_of("name=a%2Fb"), "a/b");
        assert_eq!(name_of("name=a%252Fb"), "a%2Fb");
        assert_eq!(name_of("name=%00"), "\0");
        assert_eq!(name_of("name=%F0%9f%94%92"), "🔒");
        assert_eq!(name_of("name=a=b"), "a=b");
        assert_eq!(name_of("n%61me=/a//b/../c&"), "/a//b/../c");
    }

    #[test]
    fn what_is_wrong_is_named() {
        check_refused("", ErrorCode::InvalidName, "name");
        check_refused("name", ErrorCode::InvalidName, "name");
        check_refused("name=", ErrorCode::InvalidName, "name");
        check_refused(&format!("name={}", "x".repeat(1_025)), ErrorCode::InvalidName, "name");
        check_refused("name=%", ErrorCode::InvalidName, "name");
        check_refused("name=%zz", ErrorCode::InvalidName, "name");
        check_refused("name=%+1", ErrorCode::InvalidName, "name");
        check_refused("name=%F0", ErrorCode::InvalidName, "name");
        check_refused("name=a&name=a", ErrorCode::InvalidField, "name");
        check_refused("name=a&prefix=b", ErrorCode::InvalidField, "prefix");
        check_refused("name=a&Name=a", ErrorCode::InvalidField, "Name");
        check_refused("name=a&consistency=", ErrorCode::InvalidConsistency, "consistency");
        check_refused("name=a&consistency=Stale", ErrorCode::InvalidConsistency, "consistency");
    }

    #[test]
    fn consistency_is_linearizable_unless_asked_otherwise() {
        assert_eq!(GetQuery::parse("name=a").unwrap().consistency, Consistency::Linearizable);
        assert_eq!(GetQuery::parse("name=a&consistency=linearizable").unwrap().consistency, Consistency::Linearizable);
        assert_eq!(GetQuery::parse("consistency=stale&name=a").unwrap().consistency, Consistency::Stale);
    }
}
