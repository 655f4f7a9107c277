//! Many futures of one client: what those ask for who were woken together leaves together, and nobody is held up by one who was
//! woken and does not come.

#![cfg(all(feature = "client", feature = "server"))]

#[path = "support/node.rs"]
mod node;

use node::{client, server};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Method: in each round futures get their locks and are not polled, and at that moment something else is asked for.
#[test]
fn a_future_that_is_woken_and_not_polled_holds_nobody_up() {
    let server = server();
    let client = client(&server);
    for round in 0..20 {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut futures: Vec<_> = (0..20)
            .map(|nth| {
                Box::pin(IntoFuture::into_future(
                    client.acquire(format!("{round}:{nth}")),
                ))
            })
            .collect();
        for future in &mut futures {
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        let start = Instant::now();
        while woken.0.load(Ordering::SeqCst) < futures.len() {
            assert!(start.elapsed() < LIMIT, "the locks never came");
            std::hint::spin_loop();
        }
        let (told, done) = mpsc::channel();
        for nth in 0..3 {
            let told = told.clone();
            let other = client.acquire(format!("other:{round}:{nth}"));
            other.submit(move |lock| told.send(lock).expect("the test waits"));
        }
        for _ in 0..3 {
            let lock = done.recv_timeout(LIMIT).expect("it is held up");
            drop(lock.expect("free"));
        }
        for mut future in futures {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(lock) => drop(lock.expect("free")),
                Poll::Pending => panic!("it was woken for nothing"),
            }
        }
    }
}

#[test]
fn many_futures_of_one_thread_all_get_on() {
    let server = server();
    let client = client(&server);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut futures: Vec<_> = (0..100)
        .map(|nth| {
            let client = client.clone();
            Box::pin(async move {
                for _ in 0..50 {
                    let lock = client
                        .acquire(format!("key:{}", nth % 60))
                        .await
                        .expect("free");
                    assert_eq!(lock.release().await, Ok(true));
                }
            })
        })
        .collect();
    let start = Instant::now();
    while !futures.is_empty() {
        assert!(start.elapsed() < LIMIT, "{} are stuck", futures.len());
        futures.retain_mut(|future| pin!(future).poll(&mut context).is_pending());
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(woken.0.load(Ordering::SeqCst) > 0);
}
