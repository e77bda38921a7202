//! A small HTTP/1.1 client: one deadline per answer, and able to send what no well-behaved client would.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::SockRef;

use super::clock::{now, secs};

/// An answer, and when it was asked for and received.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) text: String,
    /// `null` if the body is no JSON.
    pub(crate) body: Value,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

impl Answer {
    /// The answer's own code: `""` for a success.
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.body[field].as_u64().unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }

    #[track_caller]
    pub(crate) fn string(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_else(|| panic!("no text {field} in {self:?}"))
    }

    /// The value of a header, its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The fences in the `holders` of a get or of a `held`.
    pub(crate) fn holder_fences(&self) -> Vec<u64> {
        let holders = self.body["holders"].as_array().or_else(|| self.body["error"]["holders"].as_array());
        holders.into_iter().flatten().filter_map(|holder| holder["fence"].as_u64()).collect()
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

/// A request as bytes, kept alive.
pub(crate) fn request(method: &str, path: &str, body: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: lockstead\r\n").into_bytes();
    if let Some(body) = body {
        let fields = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        bytes.extend_from_slice(fields.as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body.unwrap_or_default());
    bytes
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: TcpStream,
    unread: Vec<u8>,
    sent: Instant,
}

impl Conn {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, secs(2))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(secs(10)))?;
        Ok(Self { stream, unread: Vec::new(), sent: now() })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent = now();
        self.stream.write_all(bytes)
    }

    /// The next answer. The end of the connection before it is `UnexpectedEof` or `ConnectionReset`.
    pub(crate) fn answer(&mut self, within: Duration) -> io::Result<Answer> {
        let until = now() + within;
        let head_bytes = loop {
            match self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => self.read_more(until)?,
            }
        };
        let head = String::from_utf8_lossy(&self.unread[..head_bytes]).into_owned();
        let length = head.lines().filter_map(|line| line.split_once(':'));
        let length = length.into_iter().find(|(key, _)| key.eq_ignore_ascii_case("content-length"));
        let body_bytes: usize = length.map_or(Ok(0), |(_, value)| value.trim().parse()).map_err(io::Error::other)?;
        while self.unread.len() < head_bytes + body_bytes {
            self.read_more(until)?;
        }
        let received = now();
        let text = String::from_utf8_lossy(&self.unread[head_bytes..head_bytes + body_bytes]).into_owned();
        self.unread.drain(..head_bytes + body_bytes);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, head.clone()))?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status, head, text, body, sent: self.sent, received })
    }

    fn read_more(&mut self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut chunk = [0; 16 * 1_024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.unread.extend_from_slice(&chunk[..bytes]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends and waits for the answer.
    pub(crate) fn call(&mut self, bytes: &[u8], within: Duration) -> io::Result<Answer> {
        self.send(bytes)?;
        self.answer(within)
    }

    /// Whether any byte of an answer lies here unread.
    pub(crate) fn has_bytes(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let has_bytes = matches!(self.stream.peek(&mut [0]), Ok(1..));
        self.stream.set_nonblocking(false).is_ok() && has_bytes
    }

    /// Ends the connection with a reset instead of a close.
    pub(crate) fn reset(self) {
        let reset = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        reset.expect("a socket takes a linger time");
    }
}
