//! What goes through connections that are secure, in every way of calling.

use crate::support::{LIMIT, World, eventually};
use fairlock::{Client, EventLoop, KeyState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn a_lock_is_had_and_released_in_every_face() {
    let world = World::new();
    let server = world.server();
    let client = world.client(&server);
    let lock = client.acquire("a").call().expect("free");
    assert!(client.try_acquire("a").call().expect("an answer").is_none());
    assert_eq!(lock.release().call(), Ok(true));
    let lock = pollster::block_on(async { client.acquire("a").await }).expect("free");
    assert_eq!(pollster::block_on(async { lock.release().await }), Ok(true));
    let (told, done) = mpsc::channel();
    let _pending = client.acquire("a").submit(move |result| {
        told.send(result).expect("the test waits");
    });
    let lock = done.recv_timeout(LIMIT).expect("in time").expect("free");
    assert_eq!(lock.release().call(), Ok(true));
}

#[test]
fn names_and_both_kinds_of_addresses_stand_in_a_certificate() {
    let world = World::new();
    let server = world.server();
    let port = server.address().port();
    for host in ["localhost", "127.0.0.1"] {
        let client = world.options(&server).servers(format!("{host}:{port}"));
        let client = client.build().expect("options");
        drop(client.acquire(host).wait(LIMIT).call().expect("free"));
    }
}

/// Method: many requests at once from callbacks, with answers that come in any order and long lists between them.
#[test]
fn many_requests_share_a_connection() {
    let world = World::new();
    let server = world.server();
    let client = world.client(&server);
    let done = Arc::new(AtomicU32::new(0));
    const MANY: u32 = 5000;
    for number in 0..MANY {
        let done = done.clone();
        let key = format!("{}{number}", "k".repeat(400));
        // The handle is dropped at once, which releases in the background.
        let _pending = client.acquire(key).wait(LIMIT).submit(move |result| {
            result.expect("free").leave_held();
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    eventually("every grant", || done.load(Ordering::SeqCst) == MANY);
    // Two megabytes of rows.
    let page = client.locks("", None, MANY).call().expect("an answer");
    assert_eq!(page.locks.len(), MANY as usize);
}

/// Method: a client that sends for long without reading, so that records stay half sent on both sides.
#[test]
fn a_pipeline_that_is_read_late_loses_and_doubles_nothing() {
    let world = World::new();
    let server = world.server();
    let mut peer = world.peer(&server, "ca.pem").expect("a connection");
    let key = "x".repeat(500);
    const MANY: usize = 4000;
    let mut requests = String::new();
    for number in 0..MANY {
        requests.push_str(&format!("I {key} #{number}\n"));
    }
    peer.send(requests.as_bytes());
    for number in 0..MANY {
        assert_eq!(peer.hear(), format!("I {key} free 0 #{number}"));
    }
    // Far more than the sockets hold: rows that are not read.
    for number in 0..3000 {
        let reply = peer.ask(&format!("A {}{number} 30 -", "y".repeat(500)));
        assert!(reply.starts_with("A "), "{reply}");
    }
    let lists: String = (0..8).map(|_| "L - 3000\n").collect();
    peer.send(lists.as_bytes());
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..8 {
        for _ in 0..3000 {
            assert!(peer.hear().starts_with("l y"));
        }
        assert_eq!(peer.hear(), "L - 3000");
    }
}

#[test]
fn a_blocking_caller_gets_more_than_its_buffer_holds() {
    let world = World::new();
    let server = world.server();
    let client = world.client(&server);
    for number in 0..200 {
        let key = format!("{}{number}", "k".repeat(400));
        client.acquire(key).call().expect("free").leave_held();
    }
    for _ in 0..50 {
        let page = client.locks("", None, 1000).call().expect("an answer");
        assert_eq!(page.locks.len(), 200);
    }
}

#[test]
fn threads_that_block_and_callbacks_use_one_client() {
    let world = World::new();
    let server = world.server();
    let client = world.client(&server);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..200 {
                    let key = if round % 2 == 0 { 99 } else { thread };
                    let lock = client.acquire(format!("k{key}")).wait(LIMIT);
                    let lock = if round % 3 == 0 {
                        pollster::block_on(async { lock.await })
                    } else {
                        lock.call()
                    };
                    assert_eq!(lock.expect("in time").release().call(), Ok(true));
                }
            });
        }
    });
    let state = client.inspect("k99").call().expect("an answer");
    assert_eq!(state, KeyState::Free { waiters: 0 });
}

/// Method: the loop of a host turns, blocks for long, and turns again.
#[test]
fn an_event_loop_reads_records_and_may_be_late() {
    let world = World::new();
    let server = world.server();
    let event_loop = Arc::new(EventLoop::new().expect("a descriptor"));
    let client = world.options(&server).event_loop(event_loop.clone());
    let client = client.build().expect("options");
    let done = Arc::new(AtomicU32::new(0));
    for round in 0..60 {
        for number in 0..20 {
            let done = done.clone();
            let key = format!("{number} {}", "k".repeat(300));
            let _pending = client.acquire(key).wait(LIMIT).submit(move |result| {
                drop(result.expect("free"));
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let all = (round + 1) * 20;
        if round % 20 == 7 {
            std::thread::sleep(Duration::from_millis(60));
        }
        eventually("every grant", || {
            event_loop.turn(|| ());
            done.load(Ordering::SeqCst) == all
        });
    }
}

#[test]
fn waiters_are_served_in_order_and_hand_over_through_records() {
    let world = World::new();
    let server = world.server();
    let clients: Vec<Client> = (0..6).map(|_| world.client(&server)).collect();
    let first = clients[0].acquire("k").call().expect("free");
    let (told, order) = mpsc::channel();
    let mut pending = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let told = told.clone();
        pending.push(client.acquire("k").wait(LIMIT).submit(move |lock| {
            told.send((number, lock.expect("in time")))
                .expect("the test waits");
        }));
        eventually("the waiter", || {
            let waiters = clients[0].waiters("k", 1).call().expect("an answer");
            waiters.count == number as u64 + 1
        });
    }
    first.release().call().expect("an answer");
    for expected in 0..clients.len() {
        let (number, lock) = order.recv_timeout(LIMIT).expect("the next");
        assert_eq!(number, expected);
        drop(lock);
    }
}

#[test]
fn a_node_that_stops_says_goodbye_through_records() {
    let world = World::new();
    let server = world.server();
    let client = world.client(&server);
    let lock = client.acquire("k").call().expect("free");
    let mut peer = world.peer(&server, "ca.pem").expect("a connection");
    peer.send(b"A k 30 0\n");
    eventually("the waiter", || {
        client.waiters("k", 1).call().expect("an answer").count == 1
    });
    server.stop_blocking().expect("it stops");
    assert!(peer.hear().starts_with("E A k unavailable"));
    // A goodbye of TLS, so no error.
    assert_eq!(peer.hear(), "");
    drop(lock);
}
