//! Clients that do what no client should: each test does one kind of it to the real binary, prints what that costs in
//! memory and in the time of a client beside them that does nothing wrong, and looks at what is left of it afterwards.
//! The bounds are generous, for busy machines and builds without optimisation; what is printed is what counts.

mod floods;
mod logs;
mod queues;
mod readers;
mod writers;

use fairlock_processes::{LIMIT, Node, Peer};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// How long a bystander may wait for one in a hundred of its pairs. Without abuse it is some 0.1 ms.
const USEFUL: Duration = Duration::from_millis(250);

/// Waits until a node has given memory back, and prints what it had and has.
fn memory_goes_back(node: &Node, what: &str, before: u64, most: u64, slack: u64) {
    let begin = Instant::now();
    let mut after = node.resident();
    while after > before + slack && begin.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(20));
        after = node.resident();
    }
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    println!(
        "{what}: {:.1} MiB before, {:.1} at most, {:.1} after",
        mib(before),
        mib(most),
        mib(after)
    );
    assert!(after <= before + slack, "{what}: {after} after {before}");
}

/// A socket that takes little before its reader does: the system makes it as small as it can.
fn narrow(node: &Node) -> TcpStream {
    let socket = TcpStream::connect(node.address()).expect("the node listens");
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1)
        .expect("a socket has this option");
    socket
        .set_write_timeout(Some(LIMIT))
        .expect("a socket has this option");
    socket
        .set_read_timeout(Some(LIMIT))
        .expect("a socket has this option");
    socket
}

/// A number in the status line.
fn status(peer: &mut Peer, name: &str) -> u64 {
    let reply = peer.ask("S");
    let value = reply
        .split(' ')
        .find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("{name} in {reply}"))
}
