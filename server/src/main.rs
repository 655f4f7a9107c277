//! The `fairlock` binary: the server, and the commands for people and scripts that use one. `main`
//! only reads the arguments; everything that locks, waits or serves is in the library `fairlock`.

mod admin;
mod arguments;
mod bench;
mod commands;
mod connect;
mod defaults;
mod demo;
mod exit;
mod hash_secret;
mod hints;
mod inbox;
mod manual;
mod memory;
mod misspelled;
mod notify;
mod run;
mod serve;
mod settings;
mod text;
mod values;

use arguments::{Command, Parsed};
use exit::{Failure, tell};
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Command(command)) => execute(*command),
        Ok(Parsed::Text(text)) => text.print().map(|()| exit::OK).map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(code) => code.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                tell(&failure.message);
            }
            failure.code.into()
        }
    }
}

fn execute(command: Command) -> Result<u8, Failure> {
    if command.is_of_a_client() {
        for (wrong, near) in misspelled::variables_of_client() {
            tell(format_args!(
                "the variable {wrong} is not read; perhaps {near} is meant"
            ));
        }
    }
    match command {
        Command::Serve(given) => serve::serve(&given),
        Command::Run(arguments) => run::run(arguments),
        Command::Status(arguments) => commands::status(&arguments),
        Command::Inspect(arguments) => commands::inspect(&arguments),
        Command::Locks(arguments) => commands::locks(&arguments),
        Command::Acquire(arguments) => commands::acquire(&arguments),
        Command::Keep(arguments) => commands::keep(&arguments),
        Command::Release(arguments) => commands::release(&arguments),
        Command::Waiters(arguments) => commands::waiters(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Demo(arguments) => demo::demo(arguments.fast),
        Command::HashSecret => hash_secret::run(),
        Command::Man(arguments) => manual::man(arguments.dir.as_deref()),
        Command::Completions(arguments) => manual::completions(arguments.shell),
        Command::RunGuard => Ok(run::guard::watch()),
    }
}
