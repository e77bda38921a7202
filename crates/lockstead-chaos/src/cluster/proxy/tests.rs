use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::*;
use crate::clock::{ms, now};

/// A server that gives every byte back, behind a proxy.
fn echo() -> Proxy {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap()).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    proxy
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(secs(10))).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, bytes: usize) {
    stream.write_all(&vec![7; bytes]).unwrap();
    stream.read_exact(&mut vec![0; bytes]).unwrap();
}

#[test]
fn everything_passes_at_first() {
    let proxy = echo();
    exchange(&mut connect(&proxy), 100_000);
    assert_eq!(proxy.deeds(), Deeds::default());
}

#[test]
fn a_cut_resets_what_stands_and_refuses_what_comes_until_it_ends() {
    let proxy = echo();
    let mut before = connect(&proxy);
    exchange(&mut before, 1);
    proxy.set(Mode::Cut);
    assert_eq!(before.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut refused = connect(&proxy);
    let from = refused.local_addr().unwrap();
    refused.read(&mut [0]).unwrap_err();
    assert!(proxy.was_refused(from) && !proxy.was_refused(before.local_addr().unwrap()));
    proxy.set(Mode::Pass);
    exchange(&mut connect(&proxy), 1);
    assert_eq!(proxy.deeds(), Deeds { resets: 1, refused: 1, ..Deeds::default() });
}

#[test]
fn a_stall_holds_bytes_back_and_loses_none() {
    for mode in [Mode::Stall, Mode::StallAnswers, Mode::StallRequests] {
        let proxy = echo();
        let mut stream = connect(&proxy);
        exchange(&mut stream, 1);
        proxy.set(mode);
        stream.write_all(&[1, 2, 3]).unwrap();
        assert!(wait_for(secs(10), || (proxy.deeds().stalled == 1).then_some(())).is_some(), "{mode:?}");
        stream.set_read_timeout(Some(ms(50))).unwrap();
        stream.read(&mut [0]).unwrap_err();
        stream.set_read_timeout(Some(secs(10))).unwrap();
        proxy.set(Mode::Pass);
        let mut late = [0; 3];
        stream.read_exact(&mut late).unwrap();
        assert_eq!(late, [1, 2, 3], "{mode:?}");
    }
}

#[test]
fn delays_and_slow_links_take_their_time() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    exchange(&mut stream, 1);
    proxy.delay(ms(30));
    let begin = now();
    exchange(&mut stream, 1);
    assert!(begin.elapsed() >= ms(60), "one delay there, one back");
    proxy.delay(Duration::ZERO);
    proxy.slow(Some(50_000));
    let begin = now();
    exchange(&mut stream, 5_000);
    assert!(begin.elapsed() >= ms(100), "5,000 bytes at 50,000 a second");
    assert!(proxy.deeds().slowed >= 4);
}

#[test]
fn a_reset_is_passed_on_as_a_reset_and_a_close_as_a_close() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap()).unwrap();
    let through = || {
        let client = connect(&proxy);
        let server = listener.accept().unwrap().0;
        server.set_read_timeout(Some(secs(10))).unwrap();
        (client, server)
    };
    let (client, mut server) = through();
    relay::reset(&client);
    drop(client);
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (client, mut server) = through();
    drop(client);
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_answer_is_swallowed_with_its_connection() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    proxy.swallow_next_answer();
    stream.write_all(b"lost").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.swallowed_answer(secs(10)).as_deref(), Some("lost"));
    exchange(&mut connect(&proxy), 1);
}

#[test]
fn a_connection_to_a_dead_server_is_refused_and_the_client_can_be_told_so() {
    let proxy = Proxy::to(free_address()).unwrap();
    let mut stream = connect(&proxy);
    let from = stream.local_addr().unwrap();
    stream.read(&mut [0]).unwrap_err();
    assert!(proxy.was_refused(from));
}
