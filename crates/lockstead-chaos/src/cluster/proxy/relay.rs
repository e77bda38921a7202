//! The two ways of each connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::net::connect_unspec;

use super::{Direction, Mode, Shared};
use crate::clock::{ms, secs};

/// How long the rest of a swallowed answer is waited for.
const SWALLOW_REST: Duration = ms(100);
const PIECE_BYTES_MAX: usize = 64 * 1_024;
/// A slow link passes pieces of this size, so that it does not stand still for long and then pass much at once.
const SLOW_PIECE_BYTES: usize = 512;

/// Resets a connection at once, whoever reads from it or writes to it. What is lost was lost on the way.
pub(super) fn reset(stream: &TcpStream) {
    // On Linux this sends the reset, however many descriptors there are; it fails if the connection is gone already.
    let _gone = connect_unspec(stream);
}

pub(super) fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        let mode = {
            let mut state = shared.state();
            if state.stopped {
                return;
            }
            state.deeds.refused += u64::from(state.mode == Mode::Cut);
            state.mode
        };
        let server = (mode != Mode::Cut).then(|| TcpStream::connect_timeout(&shared.target, secs(1)).ok()).flatten();
        // A client that was gone before it was taken on went by a reset, and so it is passed on.
        let relayed = server.map(|server| relay(&client, &server, shared).inspect_err(|_| reset(&server)));
        if relayed.is_none_or(|relayed| relayed.is_err()) {
            if let Ok(from) = client.peer_addr() {
                shared.state().refused.insert(from);
            }
            reset(&client);
        }
    }
}

fn relay(client: &TcpStream, server: &TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_in, client_out) = (client.try_clone()?, client.try_clone()?);
    let (server_in, server_out) = (server.try_clone()?, server.try_clone()?);
    let kept = (client.try_clone()?, server.try_clone()?);
    let from = client.peer_addr()?;
    let mut state = shared.state();
    state.refused.remove(&from);
    let number = state.next_number;
    state.next_number += 1;
    state.open.insert(number, kept);
    drop(state);
    let (to_server, to_client) = (Arc::clone(shared), Arc::clone(shared));
    thread::spawn(move || pump(client_in, server_out, number, Direction::ToServer, &to_server));
    thread::spawn(move || pump(server_in, client_out, number, Direction::ToClient, &to_client));
    Ok(())
}

/// Passes bytes on until the connection ends, and its end as well: a reset as a reset, a close as a close.
fn pump(mut from: TcpStream, mut to: TcpStream, number: u64, direction: Direction, shared: &Shared) {
    let mut piece = vec![0; PIECE_BYTES_MAX];
    loop {
        let read = from.read(&mut piece);
        let Some(mut state) = shared.wait_to_pass(number, direction) else { return };
        let Ok(bytes @ 1..) = read else {
            state.open.remove(&number);
            drop(state);
            if read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) {
                reset(&to);
            }
            break;
        };
        if direction == Direction::ToClient && state.to_swallow > 0 {
            state.to_swallow -= 1;
            state.open.remove(&number);
            drop(state);
            let answer = with_rest(&piece[..bytes], &mut from);
            shared.state().swallowed.push(answer);
            reset(&to);
            break;
        }
        drop(state);
        if pass(&piece[..bytes], &mut to, (number, direction), shared).is_err() {
            break;
        }
    }
    if to.shutdown(Shutdown::Both).is_err() || from.shutdown(Shutdown::Both).is_err() {
        // One of the ends was quicker.
    }
}

/// Writes bytes at the pace that holds now.
fn pass(bytes: &[u8], to: &mut TcpStream, way: (u64, Direction), shared: &Shared) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let Some(mut state) = shared.wait_to_pass(way.0, way.1) else { return Err(ErrorKind::ConnectionReset.into()) };
        let pace = state.pace();
        state.deeds.slowed += u64::from(!pace.is_full());
        drop(state);
        let length = if pace.bytes_per_s.is_some() { left.len().min(SLOW_PIECE_BYTES) } else { left.len() };
        thread::sleep(pace.time_for(length));
        to.write_all(&left[..length])?;
        left = &left[length..];
    }
    Ok(())
}

fn with_rest(begin: &[u8], from: &mut TcpStream) -> Vec<u8> {
    let mut answer = begin.to_vec();
    let _gone = from.set_read_timeout(Some(SWALLOW_REST));
    // Ends with the time-out, or with the connection: either way that was all.
    let _all = from.read_to_end(&mut answer);
    answer
}
