//! A real `fork`, and a child that has to end well in time.
#![allow(unsafe_code)]
#![allow(unreachable_pub, reason = "several test programs use it")]

use std::time::{Duration, Instant};

/// Far longer than a child takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs `child` in a forked process and waits until it has ended well.
pub fn forked(child: impl FnOnce()) {
    // SAFETY: the child runs ordinary code although the parent has threads. That is what these
    // tests are about: glibc makes its allocator usable in a child, and nothing else that another
    // thread may have locked is used there.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork works");
    if process == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the process without the harness's exit handlers.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    ended_well(process);
}

/// Waits until a child has ended well.
pub fn ended_well(process: libc::pid_t) {
    let start = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: waits for the child that was made above.
        let done = unsafe { libc::waitpid(process, &raw mut status, libc::WNOHANG) };
        if done == process {
            assert_eq!(status, 0, "the child ended well");
            return;
        }
        if start.elapsed() > LIMIT {
            // SAFETY: ends the child that was made above.
            unsafe { libc::kill(process, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
