//! Where a node answers.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::http::uri::Authority;

/// The address of a node's API: `http://host:port`, or `host:port` for short.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    authority: Authority,
}

/// A text that is no address of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address like http://127.0.0.1:7401: {why}")]
pub struct EndpointError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Endpoint {
    /// The address without its scheme, `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// The host alone, an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// The full address of a path (with its query) on this node.
    pub(crate) fn uri(&self, path: &str) -> Result<Uri, hyper::http::Error> {
        Uri::builder().scheme("http").authority(self.authority.clone()).path_and_query(path).build()
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        parse(text).map_err(|why| EndpointError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<Endpoint, &'static str> {
    let text = text.trim();
    if text.starts_with("https:") {
        return Err("TLS is not supported yet");
    }
    let rest = text.strip_prefix("http://").unwrap_or(text);
    let host_and_port = rest.strip_suffix('/').unwrap_or(rest);
    let authority: Authority = host_and_port.parse().map_err(|_| "host:port is needed")?;
    match (authority.port_u16(), authority.host(), authority.as_str().contains('@')) {
        (None | Some(0), _, _) => Err("a port from 1 to 65535 is needed"),
        (_, "", _) => Err("a host is needed"),
        (_, _, true) => Err("a user name is not supported"),
        (Some(_), _, false) => Ok(Endpoint { authority }),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let parsed = text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()).map_err(|error| error.why);
        assert_eq!(parsed, expected.map(str::to_owned), "{text:?}");
    }

    #[test]
    fn an_address_is_taken_with_and_without_its_scheme() {
        check("http://127.0.0.1:7401", Ok("http://127.0.0.1:7401"));
        check(" 127.0.0.1:7401 ", Ok("http://127.0.0.1:7401"));
        check("http://[::1]:7401/", Ok("http://[::1]:7401"));
        check("node-1.example:80", Ok("http://node-1.example:80"));
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        check("", Err("host:port is needed"));
        check("localhost", Err("a port from 1 to 65535 is needed"));
        check("localhost:0", Err("a port from 1 to 65535 is needed"));
        check("https://localhost:1", Err("TLS is not supported yet"));
        check("http://localhost:1/v1", Err("host:port is needed"));
        check("me@localhost:1", Err("a user name is not supported"));
    }
}
