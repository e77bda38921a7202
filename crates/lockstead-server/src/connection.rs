//! One connection, driven under its timeouts.
//!
//! hyper's own timeout for heads also runs while a connection is idle, so it cannot tell a slow head (10 s) from an
//! idle connection (75 s). Here both come from what the connection was seen to do last, and one timer, which is set
//! anew only when it fires or a deadline comes nearer: a request that arrives whole touches no timer.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::config::ServerConfig;
use crate::node::Node;
use crate::service::HttpService;

/// The most of a head that is buffered, in bytes; past it hyper answers 431. A get with the longest name, every byte of
/// it percent-encoded, takes a tenth of it.
const HEAD_BYTES_MAX: usize = 32 * 1_024;
/// How long, and for how many bytes, a connection is read on after an answer that left its body unread: closing it at
/// once would reset it, and the reset can overtake the answer (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: u64 = 16 * 1_024 * 1_024;
/// How long the last answer may take to be written once the shutdown does not wait any longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a connection does, seen by its task, its socket, its service and the search for one to close.
#[derive(Debug)]
pub(crate) struct Activity {
    /// The begin of the phases' milliseconds: one for the whole server.
    epoch: Instant,
    /// Milliseconds since the epoch, shifted left by 2, and the phase that began then.
    phase_since: AtomicU64,
    cut: AtomicBool,
    unread: AtomicBool,
}

/// Waiting for the first head, or in the middle of a later one.
const HEAD: u64 = 0;
/// Between an answer and the next head.
const IDLE: u64 = 1;
/// In a request: its own deadlines hold.
const BUSY: u64 = 2;

impl Activity {
    pub(crate) fn new(epoch: Instant) -> Self {
        let activity =
            Self { epoch, phase_since: AtomicU64::new(0), cut: AtomicBool::new(false), unread: AtomicBool::new(false) };
        activity.enter(HEAD);
        activity
    }

    pub(crate) fn begin(&self) {
        self.enter(BUSY);
    }

    pub(crate) fn end(&self) {
        self.enter(IDLE);
    }

    /// The answer leaves some of the request's body unread.
    pub(crate) fn leave_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// The request in flight has to be answered now.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Since when no request is in flight, in milliseconds since the epoch.
    pub(crate) fn free_since_ms(&self) -> Option<u64> {
        match self.phase() {
            (BUSY, _) => None,
            (_, since_ms) => Some(since_ms),
        }
    }

    fn received(&self) {
        if self.phase().0 == IDLE {
            self.enter(HEAD);
        }
    }

    fn enter(&self, phase: u64) {
        let since_ms = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX >> 2);
        self.phase_since.store(since_ms << 2 | phase, Ordering::Relaxed);
    }

    fn phase(&self) -> (u64, u64) {
        let phase_since = self.phase_since.load(Ordering::Relaxed);
        (phase_since & 3, phase_since >> 2)
    }

    fn deadline(&self, config: &ServerConfig) -> Option<Instant> {
        let (phase, since_ms) = self.phase();
        let since = self.epoch + Duration::from_millis(since_ms);
        match phase {
            HEAD => Some(since + config.header_timeout),
            IDLE => Some(since + config.idle_timeout),
            _busy => None,
        }
    }
}

/// A socket that notes when bytes arrive.
struct Observed {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl AsyncRead for Observed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.activity.received();
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for Observed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Serves a connection to its end. `close` ends it once no request is in flight; `shutdown`, of which `close` is a
/// child, gives the request in flight its grace period as well.
pub(crate) async fn run<N: Node>(
    stream: TcpStream,
    service: HttpService<N>,
    activity: Arc<Activity>,
    close: CancellationToken,
    shutdown: CancellationToken,
) {
    let config = service.shared.config.clone();
    let answer = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let answer = service.clone().answer(Arc::clone(&activity), request);
            async move { Ok::<_, Infallible>(answer.await) }
        })
    };
    let io = TokioIo::new(Observed { stream, activity: Arc::clone(&activity) });
    let mut connection = http1_builder().serve_connection(io, answer);
    let mut clock = Clock::new(&config, &activity);
    drive(&mut connection, &mut clock, &close, &shutdown).await;
    if activity.unread.load(Ordering::Relaxed) {
        linger(connection.into_parts().io.into_inner().stream).await;
    }
}

/// hyper's timeout for heads is off (see above). `half_close` stays off: a client that closes while it waits is gone,
/// and its request is dropped at once. `pipeline_flush` stays off: it holds back an answer while unread bytes are
/// buffered, and hyper 1.12 then closes a connection whose body is broken or unwanted without having written the
/// answer.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).half_close(false).max_buf_size(HEAD_BYTES_MAX);
    builder
}

trait Closing {
    fn close_when_free(&mut self);
}

impl<S> Closing for http1::Connection<TokioIo<Observed>, S>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = axum::body::Body> + Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn close_when_free(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

async fn drive<C>(connection: &mut C, clock: &mut Clock<'_>, close: &CancellationToken, shutdown: &CancellationToken)
where
    C: Future<Output = hyper::Result<()>> + Closing + Unpin,
{
    let mut closing = pin!(close.cancelled());
    let mut stopping = pin!(shutdown.cancelled());
    let (mut is_closing, mut is_stopping) = (false, false);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = Pin::new(&mut *connection).poll(cx) {
                debug!(?result, "connection ended");
                return Poll::Ready(());
            }
            if !is_closing && closing.as_mut().poll(cx).is_ready() {
                is_closing = true;
                connection.close_when_free();
                continue;
            }
            // Asked only after `closing`: polling one token shared by all connections costs a lock that they share.
            if is_closing && !is_stopping && stopping.as_mut().poll(cx).is_ready() {
                is_stopping = true;
                clock.start_grace();
            }
            match ready!(clock.poll_event(cx)) {
                Event::Cut => {}
                Event::Overdue => return Poll::Ready(()),
            }
        }
    })
    .await;
}

/// What a connection's clock can say.
enum Event {
    /// The request in flight was told to end: poll it.
    Cut,
    /// The connection is to be dropped.
    Overdue,
}

/// The one timer of a connection.
struct Clock<'a> {
    config: &'a ServerConfig,
    activity: &'a Activity,
    timer: Pin<Box<Sleep>>,
    grace_end: Option<Instant>,
}

impl<'a> Clock<'a> {
    fn new(config: &'a ServerConfig, activity: &'a Activity) -> Self {
        let first = Instant::now() + config.header_timeout;
        Self { config, activity, timer: Box::pin(sleep_until(first)), grace_end: None }
    }

    fn start_grace(&mut self) {
        self.grace_end = Some(Instant::now() + self.config.drain_grace);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            let deadline = self.activity.deadline(self.config);
            let Some(nearest) = deadline.into_iter().chain(self.grace_end).min() else { return Poll::Pending };
            if self.timer.is_elapsed() || nearest < self.timer.deadline() {
                self.timer.as_mut().reset(nearest);
            }
            ready!(self.timer.as_mut().poll(cx));
            if nearest <= Instant::now() {
                return Poll::Ready(self.event());
            }
        }
    }

    fn event(&mut self) -> Event {
        let now = Instant::now();
        if self.grace_end.is_some_and(|end| end <= now) && !self.activity.cut.swap(true, Ordering::Relaxed) {
            self.grace_end = Some(now + LAST_WORDS);
            Event::Cut
        } else {
            Event::Overdue
        }
    }
}

/// Reads on for a while, so that the answer is not overtaken by a reset.
async fn linger(stream: TcpStream) {
    let mut rest = stream.take(LINGER_BYTES_MAX);
    // Neither an error nor the end of the time changes anything: the socket is closed next.
    let _ended = timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}
