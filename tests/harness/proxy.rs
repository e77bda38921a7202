//! A TCP proxy that can cut, stall, delay, and swallow an answer.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::clock::{eventually, ms, secs};
use super::ports::free_address;

/// How long the rest of a swallowed answer is waited for.
const SWALLOW_REST: Duration = ms(100);

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They pass.
    Pass,
    /// Connections are reset, and so are new ones.
    Cut,
    /// Connections stand, and nothing passes: packets are dropped. They pass once this ends, as TCP sends again.
    Stall,
    /// Requests pass, answers don't.
    StallAnswers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Mode {
    fn stalls(self, direction: Direction) -> bool {
        self == Self::Stall || (self == Self::StallAnswers && direction == Direction::ToClient)
    }
}

#[derive(Debug)]
struct State {
    mode: Mode,
    delay: Duration,
    to_swallow: usize,
    swallowed: Vec<Vec<u8>>,
    next_number: u64,
    open: HashMap<u64, (TcpStream, TcpStream)>,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// A proxy before one address.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("a free address");
        let state = State {
            mode: Mode::Pass,
            delay: Duration::ZERO,
            to_swallow: 0,
            swallowed: Vec::new(),
            next_number: 0,
            open: HashMap::new(),
            stopped: false,
        };
        let shared = Arc::new(Shared { target, state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept_all(&listener, &accepting));
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, mode: Mode) {
        let mut state = self.shared.state();
        state.mode = mode;
        if mode == Mode::Cut {
            state.reset_all();
        }
        self.shared.changed.notify_all();
    }

    /// Each piece takes so long, in each direction.
    pub(crate) fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// The next answer is taken off the wire, and its connection ends.
    pub(crate) fn swallow_next_answer(&self) {
        self.shared.state().to_swallow += 1;
    }

    /// The answer that was swallowed, once it was.
    #[track_caller]
    pub(crate) fn swallowed_answer(&self) -> String {
        let bytes = eventually("an answer was swallowed", secs(10), || self.shared.state().swallowed.pop());
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopped = true;
        state.reset_all();
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the accepting thread; if it can't be reached, it is gone already.
        let _gone = TcpStream::connect_timeout(&self.address, secs(1));
    }
}

impl State {
    fn reset_all(&mut self) {
        for (_, (client, server)) in self.open.drain() {
            reset(&client);
            reset(&server);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until bytes of this direction pass; `None` once the connection was cut.
    fn wait_to_pass(&self, number: u64, direction: Direction) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state();
        loop {
            if !state.open.contains_key(&number) {
                return None;
            }
            if !state.mode.stalls(direction) {
                return Some(state);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends a connection at once, whoever reads from it. What is lost was lost on the way.
fn reset(stream: &TcpStream) {
    let _gone = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _gone = stream.shutdown(Shutdown::Both);
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        let mode = {
            let state = shared.state();
            if state.stopped {
                return;
            }
            state.mode
        };
        let server = (mode != Mode::Cut).then(|| TcpStream::connect_timeout(&shared.target, secs(1)).ok()).flatten();
        match server {
            Some(server) => relay(client, server, shared),
            None => reset(&client),
        }
    }
}

fn relay(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) {
    let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    let _gone = (client.set_nodelay(true), server.set_nodelay(true));
    let mut state = shared.state();
    let number = state.next_number;
    state.next_number += 1;
    state.open.insert(number, (copy(&client), copy(&server)));
    drop(state);
    let (to_server, to_client) = (Arc::clone(shared), Arc::clone(shared));
    let (client_too, server_too) = (copy(&client), copy(&server));
    thread::spawn(move || pump(client, server, number, Direction::ToServer, &to_server));
    thread::spawn(move || pump(server_too, client_too, number, Direction::ToClient, &to_client));
}

fn pump(mut from: TcpStream, mut to: TcpStream, number: u64, direction: Direction, shared: &Shared) {
    let mut chunk = vec![0; 64 * 1_024];
    loop {
        let read = from.read(&mut chunk);
        let Some(mut state) = shared.wait_to_pass(number, direction) else { return };
        let Ok(bytes @ 1..) = read else {
            state.open.remove(&number);
            break;
        };
        if direction == Direction::ToClient && state.to_swallow > 0 {
            state.to_swallow -= 1;
            state.open.remove(&number);
            drop(state);
            let answer = with_rest(&chunk[..bytes], &mut from);
            shared.state().swallowed.push(answer);
            reset(&to);
            break;
        }
        let delay = state.delay;
        drop(state);
        thread::sleep(delay);
        if to.write_all(&chunk[..bytes]).is_err() {
            break;
        }
    }
    if to.shutdown(Shutdown::Both).is_err() || from.shutdown(Shutdown::Both).is_err() {
        // One of the ends was quicker.
    }
}

fn with_rest(begin: &[u8], from: &mut TcpStream) -> Vec<u8> {
    let mut answer = begin.to_vec();
    let _gone = from.set_read_timeout(Some(SWALLOW_REST));
    // Ends with the time-out, or with the connection: either way that was all.
    let _all = from.read_to_end(&mut answer);
    answer
}
