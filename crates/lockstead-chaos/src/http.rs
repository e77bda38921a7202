//! A small HTTP/1.1 client: one deadline per answer, and able to send what no well-behaved client would.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::SockRef;

use crate::clock::{now, secs};

/// A connection that is not made by then is not made.
const CONNECT_WITHIN: Duration = secs(2);
const WRITE_WITHIN: Duration = secs(10);

/// An answer, and when it was asked for and received.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    head: String,
    /// The body as it came.
    pub text: String,
    /// The body; `null` if it is no JSON.
    pub body: Value,
    /// Before the first byte of the question went out.
    pub sent: Instant,
    /// After the last byte of the answer came in.
    pub received: Instant,
}

impl Answer {
    /// The answer's own code: `""` for a success.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    /// The value of a header, its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The fences in the `holders` of a get or of a `held`.
    pub fn holder_fences(&self) -> Vec<u64> {
        let holders = self.body["holders"].as_array().or_else(|| self.body["error"]["holders"].as_array());
        holders.into_iter().flatten().filter_map(|holder| holder["fence"].as_u64()).collect()
    }
}

/// A request as bytes, kept alive.
pub fn request(method: &str, path: &str, body: Option<&[u8]>) -> Vec<u8> {
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
pub struct Conn {
    stream: TcpStream,
    unread: Vec<u8>,
    sent: Instant,
}

impl Conn {
    /// Connects.
    ///
    /// # Errors
    /// When nobody accepts within 2 s.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        Ok(Self { stream, unread: Vec::new(), sent: now() })
    }

    /// The client's own end, by which a proxy knows the connection.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection has ended, or takes no more bytes for 10 s. Some may have gone out.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent = now();
        self.stream.write_all(bytes)
    }

    /// The next answer.
    ///
    /// # Errors
    /// `TimedOut` when it is not complete in time, `UnexpectedEof` or `ConnectionReset` when the connection ends first,
    /// `InvalidData` when it is no answer.
    pub fn answer(&mut self, within: Duration) -> io::Result<Answer> {
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
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::answer`].
    pub fn call(&mut self, bytes: &[u8], within: Duration) -> io::Result<Answer> {
        self.send(bytes)?;
        self.answer(within)
    }

    /// Whether any byte of an answer lies here unread.
    pub fn has_bytes(&self) -> bool {
        matches!(self.peek(), Ok(1..))
    }

    /// Whether a new request can go out on it: it stands, and nothing of an earlier answer lies in it.
    pub fn is_idle(&self) -> bool {
        self.unread.is_empty() && self.peek().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn peek(&self) -> io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        peeked
    }

    /// Ends the connection with a reset instead of a close.
    pub fn reset(self) {
        // A linger time can always be set on a socket that is open.
        let _infallible = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}
