//! Rule 4.11 with TLS: a forked child opens channels of its own and touches none of its parent's.
#![allow(unsafe_code)]

use crate::support::{LIMIT, World};
use std::time::{Duration, Instant};

/// Runs `child` in a forked process and waits until it has ended well.
fn forked(child: impl FnOnce()) {
    // SAFETY: the child runs ordinary code although the parent has threads. That is what this test is about: glibc makes
    // its allocator usable in a child, and nothing else that another thread may have locked is used there.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork works");
    if process == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the process without the harness's exit handlers.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let begin = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: waits for the child that was made above.
        let done = unsafe { libc::waitpid(process, &raw mut status, libc::WNOHANG) };
        if done == process {
            assert_eq!(status, 0, "the child ended well");
            return;
        }
        if begin.elapsed() > LIMIT {
            // SAFETY: ends the child that was made above.
            unsafe { libc::kill(process, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_client_works_in_the_child_and_goes_on_in_the_parent() {
    let world = World::new();
    let server = world.server();
    let client = world.client(&server);
    let lock = client.acquire("parents").call().expect("free");
    for round in 0..10 {
        forked(|| {
            let own = client.acquire(format!("childs {round}")).wait(LIMIT);
            let own = own.call().expect("free");
            let parents = client.try_acquire("parents").call();
            assert!(parents.expect("an answer").is_none());
            assert_eq!(own.release().call(), Ok(true));
        });
        let mine = client.acquire("between").wait(LIMIT).call();
        assert_eq!(mine.expect("free").release().call(), Ok(true));
    }
    assert_eq!(lock.release().call(), Ok(true));
}
