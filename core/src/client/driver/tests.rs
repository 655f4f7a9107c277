//! Goal: a bug that is met in one client costs the other clients of the process nothing. Method: a client that panics whenever the
//! driver looks at it, beside one that works.

use crate::{Client, Server};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_client_that_panics_each_time_holds_up_no_other_and_burns_no_core() {
    let server = Server::builder()
        .listen("127.0.0.1:0")
        .ephemeral()
        .start_blocking()
        .expect("a free port");
    let address = server.address().to_string();
    let broken = Client::new(&*address).expect("an address");
    // The driver looks at the clients in the order in which they were made.
    let sound = Client::new(&*address).expect("an address");
    sound.connected().call().expect("the server is there");
    let here = broken.handle.clone().here().expect("this process");
    let panics = &here.instance().broken;
    panics.store(1, Ordering::SeqCst);
    let start = Instant::now();
    for _ in 0..10 {
        let (told, done) = mpsc::channel();
        let _pending = sound.inspect("k").submit(move |state| {
            told.send(state).expect("the test waits");
        });
        let state = done.recv_timeout(LIMIT).expect("it was held up");
        state.expect("the server is there");
    }
    let (told, done) = mpsc::channel();
    let _pending = sound
        .acquire("k")
        .call()
        .map(|_lock| {
            let waits = sound.acquire("k").wait(Duration::from_millis(200));
            waits.submit(move |result| told.send(result.is_err()).expect("the test waits"))
        })
        .expect("free");
    done.recv_timeout(LIMIT).expect("it was held up");
    let rests = start.elapsed().as_millis() as u64 / 10;
    let panics = panics.swap(0, Ordering::SeqCst);
    assert!(panics > 2, "the driver has looked at it again and again");
    assert!(panics < 3 * (rests + 10), "{panics} in {rests} rests");
}
