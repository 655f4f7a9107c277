//! The `fairlock` binary as a user meets it: every subcommand, every exit code, and `run` in all its
//! cases. Everything goes through the real binary; a test waits for events and never for luck.

mod admin;
mod arguments;
mod bad_input;
mod bench_and_demo;
mod cluster;
mod commands;
mod job_control;
mod run;
mod run_lost;
mod secrets;
mod serve;
mod support;
mod tls;
mod users;

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the tests of the core use more of it"
)]
#[path = "../../../core/tests/tls/certificates.rs"]
mod certificates;
