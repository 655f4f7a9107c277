//! Goal: what is sent to a program comes to the threads of the program. Method: a process that holds a signal back and waits for it,
//! as one with a thread for its signals does, and is sent that signal; on any other thread it would end the process.

#![cfg(all(feature = "client", feature = "server", unix))]
#![allow(unsafe_code)]

#[path = "support/forked.rs"]
mod forked;
#[path = "support/node.rs"]
mod node;

use forked::forked;
use node::{client, server};
use std::mem::MaybeUninit;

/// What this thread, the only one of its process but for those of the library, gets of a signal that the process is sent.
fn sent_and_waited_for(signal: libc::c_int) -> libc::c_int {
    let mut set = MaybeUninit::uninit();
    let mut got = 0;
    // SAFETY: the set is made whole before it is used, and all pointers live as long as the calls.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
        libc::sigwait(set.as_ptr(), &raw mut got);
    }
    got
}

#[test]
fn a_signal_comes_to_no_thread_of_a_client() {
    let server = server();
    forked(|| {
        let _client = client(&server);
        assert_eq!(sent_and_waited_for(libc::SIGTERM), libc::SIGTERM);
    });
}

#[test]
fn a_signal_comes_to_no_thread_of_a_node() {
    forked(|| {
        let _server = server();
        assert_eq!(sent_and_waited_for(libc::SIGTERM), libc::SIGTERM);
    });
}
