//! A small HTTP/1.1 client whose answers can be judged.

use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use lockstead_chaos::http;
pub(crate) use lockstead_chaos::http::request;

/// An answer, and when it was asked for and received.
#[derive(Debug)]
pub(crate) struct Answer(http::Answer);

impl Answer {
    #[track_caller]
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.body[field].as_u64().unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }

    #[track_caller]
    pub(crate) fn string(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_else(|| panic!("no text {field} in {self:?}"))
    }

    /// The answer, which must be this success or refusal (`""` for 200).
    #[track_caller]
    pub(crate) fn must_be(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.code()), (status, code), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn must_be_ok(self) -> Self {
        self.must_be(200, "")
    }
}

impl Deref for Answer {
    type Target = http::Answer;

    fn deref(&self) -> &http::Answer {
        &self.0
    }
}

impl DerefMut for Answer {
    fn deref_mut(&mut self) -> &mut http::Answer {
        &mut self.0
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn(http::Conn);

impl Conn {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        http::Conn::open(address).map(Self)
    }

    /// The next answer. The end of the connection before it is `UnexpectedEof` or `ConnectionReset`.
    pub(crate) fn answer(&mut self, within: Duration) -> io::Result<Answer> {
        self.0.answer(within).map(Answer)
    }

    /// Sends and waits for the answer.
    pub(crate) fn call(&mut self, bytes: &[u8], within: Duration) -> io::Result<Answer> {
        self.0.call(bytes, within).map(Answer)
    }

    /// Ends the connection with a reset instead of a close.
    pub(crate) fn reset(self) {
        self.0.reset();
    }
}

impl Deref for Conn {
    type Target = http::Conn;

    fn deref(&self) -> &http::Conn {
        &self.0
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut http::Conn {
        &mut self.0
    }
}
