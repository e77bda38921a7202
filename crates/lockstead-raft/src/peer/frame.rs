//! Frames: a length (4 bytes, big-endian), a version byte, a bincode body.

use std::io;

use futures::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

use super::starts::Acquaintance;

/// The most bytes of a frame, version byte included.
pub(super) const FRAME_BYTES_MAX: usize = 16 << 20;
/// The most bytes of a frame before both ends know each other.
const HELLO_BYTES_MAX: usize = 64 << 10;
/// The version of all bodies.
const FRAME_VERSION: u8 = 1;
const LENGTH_BYTES: usize = 4;
/// A larger write buffer is not kept for the next frame.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// bincode counts an integer by its size in memory, not by its (smaller) encoding, hence the room.
const DECODED_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// Appends a whole frame to a buffer, which is left as it was if the message does not fit into one.
pub(super) fn append_frame<T: Serialize>(buffer: &mut Vec<u8>, message: &T) -> io::Result<()> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; LENGTH_BYTES]);
    buffer.push(FRAME_VERSION);
    let encoded = bincode::serde::encode_into_std_write(message, buffer, bincode::config::standard());
    let length = buffer.len() - start - LENGTH_BYTES;
    let header = u32::try_from(length).ok().filter(|_| encoded.is_ok() && length <= FRAME_BYTES_MAX);
    let Some(header) = header else {
        buffer.truncate(start);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message that fits into no frame"));
    };
    buffer[start..start + LENGTH_BYTES].copy_from_slice(&header.to_be_bytes());
    Ok(())
}

/// Reads a frame's content, from the version byte on.
pub(super) fn decode<T: DeserializeOwned>(content: &[u8]) -> io::Result<T> {
    let Some((&version, body)) = content.split_first() else { return Err(malformed("an empty frame")) };
    if version != FRAME_VERSION {
        return Err(malformed(format!("frame version {version} instead of {FRAME_VERSION}")));
    }
    let config = bincode::config::standard().with_limit::<DECODED_BYTES_MAX>();
    let (message, used) =
        bincode::serde::decode_from_slice(body, config).map_err(|error| malformed(error.to_string()))?;
    if used != body.len() {
        return Err(malformed(format!("{} bytes behind the message", body.len() - used)));
    }
    Ok(message)
}

pub(super) fn malformed(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// The reading half of a connection.
pub(super) struct FrameReader(FramedRead<OwnedReadHalf, LengthDelimitedCodec>);

impl FrameReader {
    /// The next message. Dropping the future loses nothing.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other end closed; the connection is of no use after any error.
    pub(super) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let content = self.0.next().await.ok_or(io::ErrorKind::UnexpectedEof)??;
        decode(&content)
    }
}

/// A connection that is used by one task, call by call.
pub(super) struct Connection {
    reader: FrameReader,
    writer: OwnedWriteHalf,
    buffer: Vec<u8>,
    peer: Option<Acquaintance>,
}

impl Connection {
    /// A connection that takes only small frames, until [`Self::trust`].
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (read_half, writer) = stream.into_split();
        let codec = LengthDelimitedCodec::builder().max_frame_length(HELLO_BYTES_MAX).new_codec();
        Ok(Self { reader: FrameReader(FramedRead::new(read_half, codec)), writer, buffer: Vec::new(), peer: None })
    }

    /// The other end is known: take frames of full size.
    pub(super) fn trust(&mut self) {
        self.reader.0.decoder_mut().set_max_frame_length(FRAME_BYTES_MAX);
    }

    /// The other end is this process.
    pub(super) fn met(&mut self, peer: Acquaintance) {
        self.peer = Some(peer);
    }

    /// The process at the other end, if it was checked.
    pub(super) fn peer(&self) -> Option<&Acquaintance> {
        self.peer.as_ref()
    }

    /// Writes a message. If the future is dropped, the connection is of no use any more.
    pub(super) async fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        self.buffer.clear();
        append_frame(&mut self.buffer, message)?;
        self.writer.write_all(&self.buffer).await?;
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// See [`FrameReader::receive`].
    pub(super) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        self.reader.receive().await
    }

    pub(super) fn into_halves(self) -> (FrameReader, OwnedWriteHalf) {
        (self.reader, self.writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::fakes::socket_pair;

    #[test]
    fn a_frame_is_length_version_body() {
        let mut buffer = vec![9];
        append_frame(&mut buffer, &(1_u64, "ab")).unwrap();
        assert_eq!(buffer, [9, 0, 0, 0, 5, 1, 1, 2, b'a', b'b']);
        assert_eq!(decode::<(u64, String)>(&buffer[5..]).unwrap(), (1, "ab".to_owned()));
    }

    #[test]
    fn what_is_not_exactly_one_message_of_this_version_is_refused() {
        let check = |content: &[u8], expected: &str| {
            let error = decode::<u64>(content).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        check(&[], "an empty frame");
        check(&[0, 5], "frame version 0");
        check(&[2, 5], "frame version 2");
        check(&[1, 5, 0], "1 bytes behind the message");
        check(&[1], "UnexpectedEnd");
        assert_eq!(decode::<u64>(&[1, 5]).unwrap(), 5);
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let mut content = vec![1, 253];
        content.extend_from_slice(&(1_u64 << 40).to_le_bytes());
        assert!(decode::<String>(&content).unwrap_err().to_string().contains("LimitExceeded"));
    }

    #[test]
    fn a_message_too_large_leaves_the_buffer_as_it_was() {
        let mut buffer = vec![7];
        append_frame(&mut buffer, &"x".repeat(FRAME_BYTES_MAX)).unwrap_err();
        assert_eq!(buffer, [7]);
    }

    #[tokio::test]
    async fn a_frame_over_the_limit_ends_the_connection() {
        let (near, far) = socket_pair().await;
        let (mut near, mut far) = (Connection::new(near).unwrap(), Connection::new(far).unwrap());
        let text = "x".repeat(HELLO_BYTES_MAX);
        far.trust();
        near.send(&text).await.unwrap();
        assert_eq!(far.receive::<String>().await.unwrap(), text);
        far.send(&text).await.unwrap();
        assert_eq!(near.receive::<String>().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        near.trust();
        near.writer.write_all(&u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes()).await.unwrap();
        assert_eq!(far.receive::<String>().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
