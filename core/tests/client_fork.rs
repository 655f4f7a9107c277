//! Rule 4.11: after a real `fork` the child gets an identity and connections of its own, never
//! speaks on its parent's sockets and never releases its parent's locks; the parent goes on.

#![cfg(all(feature = "client", feature = "server", unix))]
#![allow(unsafe_code)]

#[path = "support/forked.rs"]
mod forked;
#[path = "support/node.rs"]
mod node;

use forked::{ended_well, forked};
use node::{client, server};

use fairlock::{Client, ErrorKind, EventLoop, KeyState, Lock};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn hold(client: &Client, key: &str) -> Lock {
    client.acquire(key).wait(LIMIT).call().expect("free")
}

fn is_held(client: &Client, key: &str) -> bool {
    matches!(client.inspect(key).call(), Ok(KeyState::Held(_)))
}

#[test]
fn the_old_client_works_in_the_child_with_an_identity_of_its_own() {
    let server = server();
    let client = Client::builder()
        .servers(server.address().to_string())
        .name("both")
        .build()
        .expect("options");
    let lock = hold(&client, "parents");
    forked(|| {
        let mine = hold(&client, "childs");
        assert!(
            client
                .try_acquire("parents")
                .call()
                .expect("an answer")
                .is_none()
        );
        assert_eq!(mine.release().call(), Ok(true));
        // And once more by a future.
        let mine = pollster::block_on(async { client.acquire("childs").await }).expect("free");
        drop(mine);
    });
    assert!(lock.is_held());
    assert!(is_held(&client, "parents"));
    assert_eq!(lock.release().call(), Ok(true));
    drop(hold(&client, "childs"));
}

/// Goal: operators see which process holds a lock. Method: look at what a parent and its forked child hold with one client
/// that was given no name.
#[test]
fn a_client_without_a_name_has_the_number_of_the_process_it_is_in() {
    fn holder(client: &Client) -> String {
        let lock = hold(client, "k");
        let state = client.inspect("k").call().expect("an answer");
        assert_eq!(lock.release().call(), Ok(true));
        match state {
            KeyState::Held(held) => String::from_utf8(held.name.expect("a name")).expect("text"),
            KeyState::Free { .. } => panic!("it is held"),
        }
    }

    let server = server();
    let client = client(&server);
    let parent = std::process::id();
    assert!(holder(&client).ends_with(&format!(":{parent}")));
    forked(|| {
        let child = std::process::id();
        assert_ne!(child, parent);
        assert!(holder(&client).ends_with(&format!(":{child}")));
    });
}

#[test]
fn a_new_client_works_in_the_child() {
    let server = server();
    let address = server.address().to_string();
    let parents = Client::new(address.as_str()).expect("options");
    drop(hold(&parents, "warm"));
    forked(|| {
        let client = Client::new(address.as_str()).expect("options");
        let lock = hold(&client, "childs");
        assert_eq!(lock.release().call(), Ok(true));
        client.close().call().expect("closing works");
    });
    drop(hold(&parents, "childs"));
}

#[test]
fn the_child_cannot_touch_the_parents_locks() {
    let server = server();
    let client = client(&server);
    let lock = client
        .acquire("k")
        .lease(Duration::from_secs(2))
        .keep_alive()
        .on_lost(|reason| panic!("lost: {reason}"))
        .call()
        .expect("free");
    let mut lock = Some(lock);
    forked(|| {
        let lock = lock.take().expect("it is there");
        assert!(!lock.is_held());
        let error = lock.release().call().expect_err("not the child's");
        assert_eq!(error.kind(), &ErrorKind::Forked);
        let error = lock.keep().call().expect_err("not the child's");
        assert_eq!(error.kind(), &ErrorKind::Forked);
        drop(lock);
        drop(client.clone());
    });
    std::thread::sleep(Duration::from_secs(3));
    let lock = lock.expect("the child took its own copy");
    assert!(lock.is_held(), "the parent's keep-alive goes on");
    assert!(is_held(&client, "k"));
    assert_eq!(lock.release().call(), Ok(true));
}

#[test]
fn forks_under_load_neither_hang_nor_disturb() {
    let server = server();
    let client = client(&server);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for nth in 0..3 {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || {
                let key = format!("load:{nth}");
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let lock = client.acquire(&key).wait(LIMIT).call().expect("free");
                    assert_eq!(lock.release().call(), Ok(true));
                }
            });
        }
        for _ in 0..30 {
            forked(|| {
                let lock = hold(&client, "child");
                assert_eq!(lock.release().call(), Ok(true));
            });
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn an_event_loop_of_the_parent_reads_nothing_in_the_child() {
    let server = server();
    let event_loop = Arc::new(EventLoop::new().expect("descriptors"));
    let client = Client::builder()
        .servers(server.address().to_string())
        .event_loop(event_loop.clone())
        .build()
        .expect("an address");
    let lock = hold(&client, "k");
    let (done, is_done) = std::sync::mpsc::channel();
    let _pending = client
        .acquire("k")
        .submit(move |result| done.send(result).expect("the test waits"));
    assert_eq!(lock.release().call(), Ok(true));
    // The grant is on its way to the parent.
    forked(|| {
        let mut ran = false;
        for _ in 0..20 {
            event_loop.turn(|| ran = true);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(ran);
    });
    let start = Instant::now();
    let granted = loop {
        event_loop.turn(|| ());
        if let Ok(granted) = is_done.try_recv() {
            break granted;
        }
        assert!(start.elapsed() < Duration::from_secs(1), "somebody read it");
    };
    drop(granted.expect("a lock"));
}

/// Goal: what is sent to a process arrives there, although a callback of it forks. Method: fork in a callback on the client's own thread, return
/// from it in the child too, and let the parent go on.
#[test]
fn a_callback_that_returns_in_a_child_takes_nothing_that_is_its_parents() {
    let server = server();
    let client = client(&server);
    let (told, children) = mpsc::channel();
    let _pending = client.inspect("k").submit(move |_| {
        // SAFETY: nothing is done in the child but to return from here.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "fork works");
        if process > 0 {
            told.send(process).expect("the test waits");
        }
    });
    let child = children.recv_timeout(LIMIT).expect("a fork");
    for nth in 0..200 {
        let (told, answers) = mpsc::channel();
        let _pending = client
            .acquire(format!("k{nth}"))
            .submit(move |lock| told.send(lock.is_ok()).expect("the test waits"));
        let answer = answers.recv_timeout(Duration::from_secs(5));
        assert_eq!(answer, Ok(true), "the child took it");
    }
    // Where nothing else runs, the end of its last thread is that of the process.
    ended_well(child);
}

#[test]
fn a_fork_of_a_fork_works_too() {
    let server = server();
    let client = client(&server);
    drop(hold(&client, "k"));
    forked(|| {
        drop(hold(&client, "k"));
        forked(|| {
            drop(hold(&client, "k"));
        });
        drop(hold(&client, "k"));
    });
    drop(hold(&client, "k"));
}

#[test]
fn a_process_ends_at_once_with_calls_that_wait_and_locks_that_are_held() {
    let server = server();
    let observer = Client::new(server.address().to_string()).expect("options");
    let held = hold(&observer, "k");
    let start = Instant::now();
    forked(|| {
        let client = client(&server);
        let kept = client.acquire("kept").keep_alive().call().expect("free");
        let waiting = client.clone();
        std::thread::spawn(move || waiting.acquire("k").call());
        let _pending = client.acquire("k").submit(|_| {});
        while waiting_for(&client, "k") < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::forget(kept);
        // With everything that the process runs at its end.
        std::process::exit(0);
    });
    assert!(start.elapsed() < Duration::from_secs(5), "nothing keeps it");
    // Waiting requests of a dead process are out of the queue after the grace.
    let start = Instant::now();
    while waiting_for(&observer, "k") > 0 {
        assert!(start.elapsed() < LIMIT, "the dead still wait");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(held.release().call(), Ok(true));
}

fn waiting_for(client: &Client, key: &str) -> u64 {
    client.waiters(key, 1).call().expect("an answer").count
}
