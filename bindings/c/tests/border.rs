//! What holds at the border itself: the numbers are the core's, the defaults too, and a panic stays inside.

// The parts under test are compiled into this program; it uses only some of each.
#![allow(dead_code, unsafe_code, non_camel_case_types, unreachable_pub)]

#[path = "../src/report.rs"]
mod report;
#[path = "../src/status.rs"]
mod status;

use report::Failure;
use status::fairlock_status::{self, *};
use std::ffi::CStr;

fn last_error() -> String {
    // SAFETY: the string lives until the next failure on this thread, and is copied before.
    let message = unsafe { CStr::from_ptr(report::fairlock_last_error()) };
    message.to_str().expect("messages are UTF-8").to_owned()
}

#[test]
fn names_and_numbers_are_those_of_the_table_of_errors() {
    let ours: Vec<(i32, &str)> = status::STATUSES
        .iter()
        .map(|(status, name)| (*status as i32, name.to_str().expect("ASCII")))
        .collect();
    let mut expected = vec![(0, "FAIRLOCK_OK")];
    expected.extend(fairlock::ERRORS.iter().map(|row| (row.number, row.c)));
    expected.extend([
        (100, "FAIRLOCK_SERVER_FAILED"),
        (101, "FAIRLOCK_WOULD_DEADLOCK"),
        (102, "FAIRLOCK_INTERNAL"),
    ]);
    assert_eq!(ours, expected);
}

#[test]
fn the_header_states_the_defaults_of_the_core() {
    let header = include_str!("../include/fairlock.h");
    for (name, time) in [
        ("LEASE", fairlock::DEFAULT_LEASE),
        ("CONNECT_TIMEOUT", fairlock::DEFAULT_CONNECT_TIMEOUT),
    ] {
        let line = format!("#define FAIRLOCK_DEFAULT_{name}_MS {}\n", time.as_millis());
        assert!(header.contains(&line), "{line}");
    }
}

#[test]
fn a_panic_stays_inside() {
    let status = report::call(|| panic!("on purpose, {}", 1));
    assert_eq!(status, FAIRLOCK_INTERNAL);
    assert!(last_error().contains("on purpose, 1"), "{}", last_error());

    let status = report::call(|| std::panic::panic_any(7));
    assert_eq!(status, FAIRLOCK_INTERNAL);
    assert_eq!(report::value(5, || panic!("again")), 5);
    assert!(last_error().contains("again"), "{}", last_error());
}

#[test]
fn a_message_with_nul_bytes_is_not_cut_off() {
    let status: fairlock_status = report::call(|| Err(Failure::argument("a\0b")));
    assert_eq!(status, FAIRLOCK_INVALID_ARGUMENT);
    assert_eq!(last_error(), "ab");
}
