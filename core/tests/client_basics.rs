//! The client against a real server in the same process: what users do every day, and how it ends.

#![cfg(all(feature = "client", feature = "server"))]

#[path = "support/node.rs"]
mod node;

use fairlock::{Client, ErrorKind, KeyState, Lock, LostReason, Server, Token};
use node::{client, server};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Waits for something that has to come.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "{what} never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn waiters(client: &Client, key: &str) -> u64 {
    client.waiters(key, 1).call().expect("an answer").count
}

fn is_free(client: &Client, key: &str) -> bool {
    client.inspect(key).call().expect("an answer") == KeyState::Free { waiters: 0 }
}

#[test]
fn a_lock_is_had_and_released_in_every_face() {
    let server = server();
    let client = client(&server);
    // Blocking.
    let lock = client.acquire("a").call().expect("free");
    assert_eq!(lock.key(), b"a");
    assert!(lock.is_held() && lock.remaining() > Duration::from_secs(25));
    let first = lock.token();
    assert!(client.try_acquire("a").call().expect("an answer").is_none());
    assert_eq!(lock.release().call(), Ok(true));
    assert!(!lock.is_held());
    assert_eq!(lock.release().call(), Ok(true), "released already");
    // A future, under an executor that knows nothing of it.
    let lock = pollster::block_on(async { client.acquire("a").await }).expect("free");
    assert!(lock.token() > first);
    assert_eq!(pollster::block_on(async { lock.release().await }), Ok(true));
    // A callback.
    let (told, done) = mpsc::channel();
    let _pending = client.acquire("a b%").submit(move |result| {
        told.send(result).expect("the test waits");
    });
    let lock = done.recv_timeout(LIMIT).expect("in time").expect("free");
    assert_eq!(lock.key(), b"a b%");
    drop(lock);
    // Dropping releases in the background.
    drop(client.acquire("a b%").wait(LIMIT).call().expect("released"));
}

#[test]
fn keys_are_any_bytes() {
    let server = server();
    let client = client(&server);
    let long = [0xFF; 512];
    for key in [
        &b"\0"[..],
        b" \n\r\x7f%",
        "schl\u{fc}ssel".as_bytes(),
        &[0xC3],
        b"-",
        b"%41",
        &long,
    ] {
        let lock = client.acquire(key).call().expect("free");
        assert_eq!(lock.key(), key);
        let page = client.locks(key, None, 10).call().expect("an answer");
        assert_eq!(page.locks.len(), 1);
        assert_eq!(page.locks[0].key, key);
        assert_eq!(lock.release().call(), Ok(true));
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_is_sent() {
    // Nobody is there, so an answer can only come from the client itself.
    let client = Client::new("127.0.0.1:1").expect("an address");
    let bad = |result: Result<Lock, fairlock::Error>| {
        let error = result.expect_err("a bad argument");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument, "{error}");
    };
    let second = Duration::from_secs(1);
    bad(client.acquire("").call());
    bad(client.acquire([b'x'; 513]).call());
    bad(client.acquire("k").lease(Duration::ZERO).call());
    bad(client.acquire("k").lease(Duration::from_micros(999)).call());
    bad(client.acquire("k").lease(Duration::MAX).call());
    bad(client.acquire("k").wait(Duration::from_micros(999)).call());
    bad(client.acquire("k").wait(Duration::MAX).call());
    bad(client.acquire("k").lease(second / 2).keep_alive().call());
    bad(client.acquire("k").max_hold(Duration::ZERO).call());
    let kind = |error: fairlock::Error| error.kind().clone();
    assert_eq!(
        client.waiters("k", 0).call().map_err(kind),
        Err(ErrorKind::InvalidArgument)
    );
    assert_eq!(
        client.locks("", None, 100_001).call().map_err(kind),
        Err(ErrorKind::InvalidArgument)
    );
    let token = Token::new(1).expect("one");
    assert_eq!(
        client.release("", token).call().map_err(kind),
        Err(ErrorKind::InvalidArgument)
    );
    assert_eq!(
        client.keep("k", token, Duration::ZERO).call().map_err(kind),
        Err(ErrorKind::InvalidArgument)
    );
}

#[test]
fn a_lease_over_the_servers_limit_is_a_bad_argument_too() {
    let server = Server::builder()
        .listen("127.0.0.1:0")
        .ephemeral()
        .max_lease(Duration::from_secs(60))
        .start_blocking()
        .expect("a free port");
    let client = client(&server);
    let error = client
        .acquire("k")
        .lease(Duration::from_secs(61))
        .call()
        .expect_err("too long");
    assert_eq!(error.kind(), &ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn without_a_server_the_error_names_each_address_and_why() {
    let client = Client::builder()
        .servers("127.0.0.1:1,127.0.0.1:2,no-such-host.invalid:3")
        .connect_timeout(Duration::from_millis(500))
        .build()
        .expect("options");
    let error = client.acquire("k").call().expect_err("nobody is there");
    assert_eq!(error.kind(), &ErrorKind::ConnectionFailed);
    let text = error.to_string();
    for part in [
        "127.0.0.1:1: connection refused",
        "127.0.0.1:2: connection refused",
        "no-such-host.invalid:3:",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_wait_ends_and_leaves_nothing() {
    let server = server();
    let client = client(&server);
    let _held = client.acquire("k").call().expect("free");
    let start = Instant::now();
    let error = client
        .acquire("k")
        .wait(Duration::from_millis(100))
        .call()
        .expect_err("held");
    assert_eq!(error.kind(), &ErrorKind::WaitTimeout);
    assert!(start.elapsed() >= Duration::from_millis(100), "never early");
    assert_eq!(waiters(&client, "k"), 0);
}

#[test]
fn dropped_futures_and_cancelled_calls_leave_nothing_at_every_moment() {
    let server = server();
    let client = client(&server);
    let other = Client::new(server.address().to_string()).expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    // Given up before, about and after the grant.
    for round in 0..300_u64 {
        let held = (round % 2 == 0).then(|| other.acquire("k").wait(LIMIT).call().expect("free"));
        let time = Duration::from_micros(round * 7 % 400);
        runtime.block_on(async {
            let waiting = client.acquire("k");
            let _ = tokio::time::timeout(time, waiting.into_future()).await;
        });
        drop(held);
    }
    eventually("a free key", || is_free(&other, "k"));
    // The same for callbacks.
    for round in 0..300_u64 {
        let held = (round % 2 == 0).then(|| other.acquire("k").wait(LIMIT).call().expect("free"));
        let (told, done) = mpsc::channel();
        let pending = client.acquire("k").submit(move |result| {
            told.send(result.map(drop).map_err(|error| error.kind().clone()))
                .expect("the test waits");
        });
        if round % 3 != 0 {
            std::thread::sleep(Duration::from_micros(round * 11 % 400));
        }
        pending.cancel();
        pending.cancel();
        let result = done.recv_timeout(LIMIT).expect("called back");
        assert!(
            matches!(result, Ok(()) | Err(ErrorKind::Cancelled)),
            "{result:?}"
        );
        assert!(done.recv().is_err(), "called back once");
        drop(held);
    }
    eventually("a free key", || is_free(&other, "k"));
}

#[test]
fn a_blocking_call_asks_whether_to_go_on_and_stops() {
    let server = server();
    let client = client(&server);
    let held = client.acquire("k").call().expect("free");
    let mut asked = 0;
    let start = Instant::now();
    let result = client
        .acquire("k")
        .call_checking(Duration::from_millis(20), || {
            asked += 1;
            asked < 3
        });
    let error = result.expect_err("told to stop");
    assert_eq!((error.kind(), asked), (&ErrorKind::Cancelled, 3));
    assert!(start.elapsed() < Duration::from_secs(2));
    eventually("an empty queue", || waiters(&client, "k") == 0);
    // A panic in the question gives the lock up as well.
    let panics = std::panic::catch_unwind(|| {
        let _ = client
            .acquire("k")
            .call_checking(Duration::from_millis(1), || panic!("as the test wants"));
    });
    assert!(panics.is_err());
    drop(held);
    eventually("a free key", || is_free(&client, "k"));
}

#[test]
fn many_threads_share_a_client_and_exclude_each_other() {
    let server = server();
    let client = client(&server);
    let inside = AtomicU32::new(0);
    let last = std::sync::Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let lock = client.acquire("k").wait(LIMIT).call().expect("in turn");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    let mut last = last.lock().expect("no panic");
                    assert!(lock.token().get() > *last);
                    *last = lock.token().get();
                    drop(last);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(lock.release().call(), Ok(true));
                }
            });
        }
    });
}

#[test]
fn a_lock_goes_from_thread_to_thread() {
    let server = server();
    let client = client(&server);
    let lock = client.acquire("k").call().expect("free");
    let lock = std::thread::spawn(move || {
        assert!(lock.is_held());
        lock
    })
    .join()
    .expect("no panic");
    assert_eq!(
        std::thread::spawn(move || lock.release().call())
            .join()
            .expect("no panic"),
        Ok(true)
    );
}

#[test]
fn keep_alive_goes_on_while_the_callers_threads_are_blocked() {
    let server = server();
    let client = client(&server);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let lock = client
            .acquire("k")
            .lease(Duration::from_secs(1))
            .keep_alive()
            .await
            .expect("free");
        // The only thread of the event loop does not come back for three leases.
        std::thread::sleep(Duration::from_secs(3));
        assert!(lock.is_held());
        assert_eq!(lock.release().await, Ok(true));
    });
}

#[test]
fn each_way_to_lose_a_lock_is_told_once() {
    let server = server();
    let client = client(&server);
    let operator = Client::new(server.address().to_string()).expect("an address");
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let acquire = |key: &'static str, keep: bool| {
        let told = told.clone();
        let acquire = client
            .acquire(key)
            .lease(Duration::from_secs(1))
            .on_lost(move |reason| told.lock().expect("no panic").push((key, reason)));
        if keep { acquire.keep_alive() } else { acquire }
            .call()
            .expect("free")
    };
    let expired = acquire("expired", false);
    let taken = acquire("taken", true);
    let released = acquire("released", true);
    let closed = acquire("closed", true);
    let waiting = std::thread::spawn(move || {
        let reason = pollster::block_on(expired.lost());
        assert!(!expired.is_held() && expired.remaining().is_zero());
        assert_eq!(expired.release().call(), Ok(false));
        let error = expired.keep().call().expect_err("lost");
        assert_eq!(
            error.kind(),
            &ErrorKind::LockLost {
                reason: LostReason::Expired
            }
        );
        reason
    });
    assert_eq!(operator.release("taken", taken.token()).call(), Ok(true));
    assert_eq!(released.release().call(), Ok(true));
    assert_eq!(waiting.join().expect("no panic"), LostReason::Expired);
    eventually("the loss of the taken one", || {
        taken.lost_reason().is_some()
    });
    assert_eq!(taken.release().call(), Ok(false));
    client.close().call().expect("closing works");
    assert_eq!(closed.lost_reason(), Some(LostReason::Closed));
    assert_eq!(closed.release().call(), Ok(false));
    assert!(is_free(&operator, "closed"));
    let (late, heard) = mpsc::channel();
    closed.on_lost(move |reason| late.send(reason).expect("the test waits"));
    assert_eq!(heard.recv_timeout(LIMIT), Ok(LostReason::Closed), "at once");
    let mut told = told.lock().expect("no panic").clone();
    told.sort_by_key(|(key, _)| *key);
    assert_eq!(
        told,
        [
            ("closed", LostReason::Closed),
            ("expired", LostReason::Expired),
            ("taken", LostReason::Taken),
        ]
    );
}

/// Runs what might hang.
fn in_time(what: &str, run: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = ended.send(());
    });
    assert_eq!(end.recv_timeout(LIMIT), Ok(()), "{what}");
}

#[test]
fn what_a_callback_owns_may_be_a_lock_of_the_same_client() {
    let server = server();
    let client = client(&server);
    let hold = |key: &str| client.acquire(key).wait(LIMIT).call().expect("free");
    let (outer, inner) = (hold("outer"), hold("inner"));
    outer.on_lost(move |_| drop(inner));
    in_time("a lock is dropped with its callback", move || drop(outer));

    let (blocked, inner) = (hold("blocked"), hold("inner"));
    let acquire = client.acquire("blocked").on_lost(move |_| drop(inner));
    in_time("a future is dropped with its callback", move || {
        let mut future = std::pin::pin!(acquire.into_future());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
    });

    let inner = hold("inner");
    let acquire = client.acquire("blocked").wait(Duration::from_millis(20));
    let acquire = acquire.on_lost(move |_| drop(inner));
    in_time("an acquire without success drops its callback", move || {
        acquire.call().expect_err("held");
    });

    let (left, inner) = (hold("left"), hold("inner"));
    left.on_lost(move |_| drop(inner));
    in_time("a lock that is left held drops its callback", move || {
        left.leave_held();
    });
    drop(hold("inner"));
    drop(blocked);
}

#[test]
fn a_blocking_call_in_a_callback_is_refused_and_a_release_in_it_goes_on() {
    let server = server();
    let client = client(&server);
    let lock = client.acquire("k").call().expect("free");
    let (done, is_done) = mpsc::channel();
    let inner = client.clone();
    let _pending = client.inspect("k").submit(move |_| {
        let error = inner.inspect("k").call().expect_err("it would hang");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        lock.release().call().expect_err("it would hang");
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(LIMIT).expect("no hang");
    drop(client.acquire("k").wait(LIMIT).call().expect("released"));
}

#[test]
fn futures_that_wait_for_a_loss_leave_nothing_when_they_are_dropped() {
    struct Count;
    impl std::task::Wake for Count {
        fn wake(self: Arc<Count>) {}
    }
    let server = server();
    let lock = client(&server).acquire("k").call().expect("free");
    let count = Arc::new(Count);
    for _ in 0..100 {
        let waker = std::task::Waker::from(count.clone());
        let mut context = std::task::Context::from_waker(&waker);
        let mut lost = std::pin::pin!(lock.lost());
        assert!(lost.as_mut().poll(&mut context).is_pending());
        assert!(lost.as_mut().poll(&mut context).is_pending());
        assert_eq!(Arc::strong_count(&count), 3, "one for this future");
    }
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_turn_of_the_event_loop_within_a_callback_of_it_is_harmless() {
    in_time("a turn within a turn", || {
        let server = server();
        let event_loop = Arc::new(fairlock::EventLoop::new().expect("descriptors"));
        let client = Client::builder()
            .servers(server.address().to_string())
            .event_loop(event_loop.clone())
            .build()
            .expect("an address");
        client.connected().call().expect("a server");
        for _ in 0..50 {
            let (done, is_done) = mpsc::channel();
            let inner = event_loop.clone();
            let _pending = client.inspect("k").submit(move |state| {
                inner.turn(|| ());
                done.send(state).expect("the test waits");
            });
            while is_done.try_recv().is_err() {
                event_loop.turn(|| ());
            }
        }
    });
}

#[test]
fn closing_ends_everything_at_once_and_clearly() {
    let server = server();
    let client = client(&server);
    let lock = client.acquire("k").call().expect("free");
    let (told, done) = mpsc::channel();
    let _pending = client.acquire("k").submit(move |result| {
        told.send(result.map(drop)).expect("the test waits");
    });
    let blocked = {
        let client = client.clone();
        std::thread::spawn(move || client.acquire("k").call().map(drop))
    };
    let other = Client::new(server.address().to_string()).expect("an address");
    eventually("two waiters", || waiters(&other, "k") == 2);
    client.close().call().expect("closing works");
    for result in [
        done.recv_timeout(LIMIT).expect("called back"),
        blocked.join().expect("no panic"),
    ] {
        assert_eq!(result.expect_err("closed").kind(), &ErrorKind::Closed);
    }
    assert_eq!(
        client.acquire("k").call().expect_err("closed").kind(),
        &ErrorKind::Closed
    );
    client.close().call().expect("closing twice is well");
    drop(lock);
    eventually("a free key", || is_free(&other, "k"));
}

#[test]
fn a_client_ends_with_its_last_handle_lock_and_call() {
    let server = server();
    let observer = client(&server);
    let connections = || observer.status().call().expect("an answer").connections;
    let before = connections();
    for _ in 0..20 {
        let client = client_of(&server);
        let lock = client.acquire("k").wait(LIMIT).call().expect("free");
        drop(client);
        assert!(lock.is_held(), "the lock keeps its client alive");
        drop(lock);
    }
    eventually("a free key", || is_free(&observer, "k"));
    eventually("the end of their connections", || {
        connections() <= before + 1
    });
}

fn client_of(server: &Server) -> Client {
    client(server)
}

#[test]
fn dropping_during_everything_is_harmless() {
    let server = server();
    let observer = client(&server);
    for round in 0..100_u64 {
        let client = client_of(&server);
        let stop = Arc::new(AtomicBool::new(false));
        let pending = client.acquire("k").submit(|_| {});
        let waiting = client.acquire("k");
        let future = waiting.into_future();
        let closing = client.close().into_future();
        std::thread::sleep(Duration::from_micros(round * 17 % 500));
        match round % 4 {
            0 => drop(future),
            1 => drop(pending),
            2 => drop(closing),
            _ => drop(client),
        }
        stop.store(true, Ordering::Relaxed);
    }
    eventually("a free key", || is_free(&observer, "k"));
}

#[test]
fn a_lock_that_is_left_held_stays_so() {
    let server = server();
    let client = client(&server);
    let token = client.acquire("k").call().expect("free").leave_held();
    drop(client);
    let other = client_of(&server);
    std::thread::sleep(Duration::from_millis(50));
    let KeyState::Held(held) = other.inspect("k").call().expect("an answer") else {
        panic!("it was released");
    };
    assert_eq!(held.token, token);
    assert_eq!(
        other.keep("k", token, Duration::from_secs(60)).call(),
        Ok(true)
    );
    assert_eq!(other.release("k", token).call(), Ok(true));
    assert_eq!(other.release("k", token).call(), Ok(false));
    assert_eq!(
        other.keep("k", token, Duration::from_secs(60)).call(),
        Ok(false)
    );
}

#[test]
fn a_server_that_starts_later_is_found() {
    let address = server().address();
    let client = Client::builder()
        .servers(address)
        .connect_timeout(Duration::from_secs(10))
        .build()
        .expect("options");
    let waiting = std::thread::spawn(move || client.acquire("k").call().map(drop));
    std::thread::sleep(Duration::from_millis(100));
    let _server = Server::builder()
        .listen(address.to_string())
        .ephemeral()
        .start_blocking()
        .expect("the port is free again");
    assert_eq!(waiting.join().expect("no panic"), Ok(()));
}

#[test]
fn ten_thousand_failed_tries_leave_nothing() {
    let server = server();
    let client = client(&server);
    let held = client.acquire("k").call().expect("free");
    for _ in 0..10_000 {
        assert!(client.try_acquire("k").call().expect("an answer").is_none());
    }
    assert_eq!(held.release().call(), Ok(true));
    assert!(is_free(&client, "k"));
    let status = client.status().call().expect("an answer");
    assert_eq!((status.held, status.waiting), (0, 0));
}
