//! The client against a scripted server: what shows only when bytes come at a chosen moment.

#![cfg(feature = "client")]

use fairlock::Client;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Lines that a client has written, each with the connection to answer on.
type Lines = Receiver<(TcpStream, String)>;

/// A server that says hello and leaves the rest to its test.
fn scripted() -> (SocketAddr, Lines) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (tell, lines) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let tell = tell.clone();
            std::thread::spawn(move || {
                let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                for line in reader.lines().map_while(Result::ok) {
                    if line.starts_with('H') {
                        let hello = format!(
                            "H 1 role=active node={address} active={address} peers={address} server=0\n"
                        );
                        stream.write_all(hello.as_bytes()).expect("it listens");
                    } else {
                        let stream = stream.try_clone().expect("a descriptor");
                        if tell.send((stream, line)).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, lines)
}

#[test]
fn rule_4_5_an_end_that_comes_together_with_the_last_bytes_is_noticed_at_once() {
    let (address, lines) = scripted();
    let client = Client::new(address.to_string()).expect("an address");
    // A callback keeps the client's thread busy, so that all that comes meanwhile comes at once.
    let (go_on, wait) = channel::<()>();
    let (busy, is_busy) = channel();
    let _inspect = client.inspect("x").submit(move |_| {
        busy.send(()).expect("the test waits");
        let _ = wait.recv_timeout(LIMIT);
    });
    let (mut stream, line) = lines.recv_timeout(LIMIT).expect("an inspect");
    let tag = line.rsplit(' ').next().expect("a tag").to_owned();
    // The other connection is to be up, too.
    std::thread::sleep(Duration::from_millis(100));
    writeln!(stream, "I x free 0 {tag}").expect("it listens");
    is_busy.recv_timeout(LIMIT).expect("the callback");
    let _acquire = client.acquire("k").submit(|_| ());
    let (mut stream, line) = lines.recv_timeout(LIMIT).expect("an acquire");
    assert!(line.starts_with("A k 30 0 #"), "{line}");
    writeln!(stream, "P #999").expect("it listens");
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("it is open");
    std::thread::sleep(Duration::from_millis(100));
    go_on.send(()).expect("the callback waits");
    let (_, again) = lines
        .recv_timeout(Duration::from_secs(4))
        .expect("tried again at once, long before a probe could tell");
    assert_eq!(again, format!("{line}.1"));
}
