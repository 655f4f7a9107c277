//! Goal: whoever reads a connection, no answer lies there unread: not while a call that reads it is busy elsewhere, not when the blocking
//! call after it is not one, not when an event loop stands still. Method: a real server and a client whose calls follow each other so that the
//! connection is with the one who does not come; answers are told by callback, and no callback comes by itself.

#![cfg(all(feature = "client", feature = "server"))]

#[path = "support/node.rs"]
mod node;

use fairlock::{Client, EventLoop, Server};
use node::{client, server};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);
/// The client's thread looks this often at least whether somebody still reads: what waits for that takes longer.
const SOON: Duration = Duration::from_millis(10);

fn client_of(event_loop: &Arc<EventLoop>, server: &Server) -> Client {
    let client = Client::builder()
        .servers(server.address().to_string())
        .event_loop(event_loop.clone())
        .build()
        .expect("an address");
    client.connected().call().expect("the server is there");
    client
}

fn event_loop() -> Arc<EventLoop> {
    Arc::new(EventLoop::new().expect("descriptors"))
}

/// Asks something, and says how to wait for the answer.
fn ask(client: &Client) -> mpsc::Receiver<()> {
    let (told, done) = mpsc::channel();
    let _pending = client.inspect("k").submit(move |state| {
        state.expect("the server is there");
        // The test may have seen enough.
        let _ = told.send(());
    });
    done
}

/// The loop turns until it reads for its clients, and nobody else does.
fn turn_for(event_loop: &EventLoop, client: &Client) {
    for _ in 0..20 {
        let done = ask(client);
        let start = Instant::now();
        while done.try_recv().is_err() {
            event_loop.turn(|| ());
            assert!(start.elapsed() < LIMIT, "no answer");
        }
    }
}

/// How long it mostly takes.
fn median(rounds: usize, mut round: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<_> = (0..rounds).map(|_| round()).collect();
    times.sort();
    times[rounds / 2]
}

#[test]
fn an_event_loop_that_stands_still_holds_up_no_answer_however_much_is_started_meanwhile() {
    let server = server();
    let event_loop = event_loop();
    let client = client_of(&event_loop, &server);
    turn_for(&event_loop, &client);
    let (told, done) = mpsc::channel();
    for _ in 0..200 {
        let told = told.clone();
        let _pending = client.inspect("k").submit(move |state| {
            told.send(state).expect("the test waits");
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    // The last of them need not have been answered yet.
    let answered = done.try_iter().count();
    assert!(answered > 100, "{answered} of 200 while it stood still");
    // It comes back, and reads as before.
    turn_for(&event_loop, &client);
}

#[test]
fn an_event_loop_that_has_turned_reads_alone() {
    let server = server();
    let event_loop = event_loop();
    let client = client_of(&event_loop, &server);
    let mut here = 0;
    for _ in 0..100 {
        turn_for(&event_loop, &client);
        let (told, done) = mpsc::channel();
        let _pending = client.inspect("k").submit(move |_| {
            let thread = std::thread::current().id();
            told.send(thread).expect("the test waits");
        });
        let start = Instant::now();
        let thread = loop {
            event_loop.turn(|| ());
            match done.try_recv() {
                Ok(thread) => break thread,
                Err(_) => assert!(start.elapsed() < LIMIT, "no answer"),
            }
        };
        here += usize::from(thread == std::thread::current().id());
    }
    // A machine that is busy elsewhere may let it come late now and then.
    assert!(here > 80, "{here} of 100 by the loop");
}

#[test]
fn what_another_thread_starts_is_not_left_to_an_event_loop_that_may_not_come() {
    let server = server();
    let event_loop = event_loop();
    let client = client_of(&event_loop, &server);
    turn_for(&event_loop, &client);
    let took = median(15, || {
        // By then nobody has used the loop for a while, and it turns once more.
        std::thread::sleep(Duration::from_millis(60));
        event_loop.turn(|| ());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let start = Instant::now();
                ask(&client).recv_timeout(LIMIT).expect("an answer");
                start.elapsed()
            });
            other.join().expect("no panic")
        })
    });
    assert!(took < SOON, "{took:?}");
}

#[test]
fn what_another_thread_starts_during_a_turn_does_not_wait_for_its_end() {
    let server = server();
    let event_loop = event_loop();
    let client = client_of(&event_loop, &server);
    let took = median(15, || {
        let mut took = Duration::ZERO;
        event_loop.turn(|| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let start = Instant::now();
                    ask(&client).recv_timeout(LIMIT).expect("an answer");
                    start.elapsed()
                });
                took = other.join().expect("no panic");
            });
        });
        took
    });
    assert!(took < SOON, "{took:?}");
}

#[test]
fn what_is_started_in_a_turn_that_does_not_end_leaves_all_the_same() {
    let server = server();
    let event_loop = event_loop();
    let client = client_of(&event_loop, &server);
    let observer = self::client(&server);
    let took = median(5, || {
        let lock = client.acquire("k").wait(LIMIT).call().expect("free");
        // Until the client's own thread has nothing to look after.
        std::thread::sleep(Duration::from_millis(60));
        let mut took = Duration::ZERO;
        event_loop.turn(|| {
            let start = Instant::now();
            drop(lock);
            let next = observer.acquire("k").wait(LIMIT).call();
            drop(next.expect("it was released"));
            took = start.elapsed();
        });
        took
    });
    // What is not looked after leaves when it is due to be repeated.
    assert!(took < 10 * SOON, "{took:?}");
}

#[test]
fn what_follows_a_blocking_call_and_is_none_is_answered_at_once() {
    let server = server();
    let client = client(&server);
    let took = median(30, || {
        let lock = client.acquire("k").call().expect("free");
        let (told, done) = mpsc::channel();
        let start = Instant::now();
        let _pending = lock.keep().submit(move |kept| {
            told.send(kept).expect("the test waits");
        });
        let kept = done.recv_timeout(LIMIT).expect("an answer");
        let took = start.elapsed();
        assert_eq!((kept, lock.release().call()), (Ok(()), Ok(true)));
        took
    });
    assert!(took < SOON, "kept in {took:?}");
}

/// Method: the call is asked whether it goes on when it has read the answer of somebody else, and gives none for as long as the test
/// wants.
#[test]
fn a_blocking_call_that_is_asked_whether_to_go_on_reads_nothing_meanwhile_and_lets_others_read() {
    let server = server();
    let client = client(&server);
    let holder = self::client(&server);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LIMIT, "no call was asked");
        let held = holder.acquire("held").wait(LIMIT).call().expect("free");
        let (asks, is_asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let waiting = client.clone();
        let waits = std::thread::spawn(move || {
            waiting.acquire("held").call_checking(2 * LIMIT, || {
                asks.send(()).expect("the test waits");
                answered.recv().unwrap_or(true)
            })
        });
        // It reads its connection for a moment only.
        let begin = Instant::now();
        let mut asked = false;
        while !asked && begin.elapsed() < Duration::from_millis(50) {
            client.inspect("k").call().expect("the server is there");
            asked = is_asked.try_recv().is_ok();
        }
        if !asked {
            drop(answer);
            held.release().call().expect("the server is there");
            drop(waits.join().expect("no panic").expect("released"));
            continue;
        }
        for _ in 0..4 {
            let answer = ask(&client).recv_timeout(Duration::from_secs(2));
            answer.expect("nobody reads");
        }
        answer.send(false).expect("the call waits");
        let ended = waits.join().expect("no panic").expect_err("told to stop");
        assert_eq!(ended.kind(), &fairlock::ErrorKind::Cancelled);
        return;
    }
}
