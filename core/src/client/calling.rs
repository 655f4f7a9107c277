//! Runs callbacks of users. On one thread none of them runs inside another one: what ends at once while a callback runs is told when that
//! one has returned, so a program that tries again in its callback needs no more of the stack each time. (Who asks to be told of a loss that
//! has come already is told in that call.) And where a callback forks, nothing that is the parent's is touched any more once it has
//! returned in the child.

use super::core::After;
use super::driver::{self, fork};
use super::instance::guarded;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
    static LATER: RefCell<VecDeque<Later>> = const { RefCell::new(VecDeque::new()) };
}

type Later = Box<dyn FnOnce() -> Returned>;

/// Where a callback has come back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Returned {
    Here,
    /// In a process that it has forked.
    InChild,
}

impl After {
    /// Runs code of users.
    pub(super) fn call_back(&mut self) {
        if !self.calls_back() {
            return;
        }
        if !RUNS.get() {
            return apart(|| self.run());
        }
        let mut after = After {
            done: std::mem::take(&mut self.done),
            lost: std::mem::take(&mut self.lost),
            ..After::default()
        };
        later(Box::new(move || after.run()));
    }

    fn run(&mut self) -> Returned {
        let mut calls = self.done.drain(..);
        while let Some((done, result)) = calls.next() {
            if run(|| done(result)) == Returned::InChild {
                calls.for_each(std::mem::forget);
                std::mem::take(&mut self.lost)
                    .into_iter()
                    .for_each(std::mem::forget);
                return Returned::InChild;
            }
        }
        drop(calls);
        let mut losses = self.lost.drain(..);
        while let Some((told, reason)) = losses.next() {
            if run(|| told(reason)) == Returned::InChild {
                losses.for_each(std::mem::forget);
                return Returned::InChild;
            }
        }
        Returned::Here
    }
}

/// Calls back, for a call that ends without having begun.
pub(super) fn call(callback: impl FnOnce() + 'static) {
    if RUNS.get() {
        later(Box::new(|| run(callback)));
    } else {
        apart(|| run(callback));
    }
}

fn run(callback: impl FnOnce()) -> Returned {
    let before = fork::generation();
    guarded(callback);
    if fork::generation() == before {
        Returned::Here
    } else {
        Returned::InChild
    }
}

fn later(callback: Later) {
    LATER.with(|later| later.borrow_mut().push_back(callback));
}

fn next() -> Option<Later> {
    LATER.with(|later| later.borrow_mut().pop_front())
}

/// Runs callbacks, and then those that have come up meanwhile.
fn apart(callbacks: impl FnOnce() -> Returned) {
    let inside = Inside(RUNS.replace(true));
    let mut returned = callbacks();
    while returned == Returned::Here
        && let Some(next) = next()
    {
        returned = next();
    }
    drop(inside);
    if returned == Returned::InChild {
        // They are owed by the parent, and it sees to them.
        while let Some(owed) = next() {
            std::mem::forget(owed);
        }
        driver::leave_in_child();
    }
}

/// While a callback waits for a blocking call, which it may on any thread but the client's own, others come at once: it may be one
/// of them that ends the wait.
pub(super) fn pause() -> impl Drop {
    Inside(RUNS.replace(false))
}

/// At its end it is as it was before.
struct Inside(bool);

impl Drop for Inside {
    fn drop(&mut self) {
        RUNS.set(self.0);
    }
}
