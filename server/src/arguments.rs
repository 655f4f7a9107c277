//! The command line: every subcommand, every option with its default, and the one sentence that a
//! wrong argument gets. What a setting of the server is called comes from `settings.rs`.

use crate::exit::{self, Failure};
use crate::hints;
use crate::settings::Given;
use crate::values::{self, Key, Prefix, Wait};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use fairlock::Token;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A fair distributed lock server and its client commands.
#[derive(Parser, Debug)]
#[command(
    name = "fairlock",
    version,
    about = "Fair distributed locks with leases and fencing tokens: the server and its commands",
    after_help = "`fairlock` alone is `fairlock serve`, with the same options. `fairlock COMMAND --help` explains a command.\n\n\
        Exit codes of the client commands: 64 wrong arguments, 69 no server reached, 74 lost or stale, 75 not had, 77 refused.",
    subcommand_required = true,
    infer_subcommands = false
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a server (also what `fairlock` alone does)
    #[command(after_help = SERVE_HELP)]
    Serve(Given),
    /// Hold a lock while a command runs
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Show what each node of the cluster is doing
    #[command(after_help = STATUS_HELP)]
    Status(Status),
    /// Show who holds a key
    #[command(after_help = KEYS_HELP)]
    Inspect(KeyQuery),
    /// List the held keys
    #[command(after_help = KEYS_HELP)]
    Locks(Locks),
    /// Take a lock, print its fencing token, and leave it held
    #[command(after_help = ACQUIRE_HELP)]
    Acquire(Acquire),
    /// Let the lease of a held lock begin again
    Keep(Keep),
    /// Free a lock, also one that another client holds
    Release(Release),
    /// Show who waits for a key, in order
    #[command(after_help = KEYS_HELP)]
    Waiters(KeyQuery),
    /// Measure a server
    #[command(after_help = BENCH_HELP)]
    Bench(Bench),
    /// A half-minute tour: a queue, rising tokens, a lease that ends, a fence, a cluster that loses a node
    Demo(Demo),
    /// Read a secret from standard input and print the line for it in a users file
    #[command(after_help = HASH_SECRET_HELP)]
    HashSecret,
    /// Print the manual pages, or write one for each command into a folder
    Man(Man),
    /// Print the completions for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(Completions),
    /// Watches over the process group of `run`; started by it and by nobody else
    #[command(hide = true, name = "run-guard")]
    RunGuard,
}

impl Command {
    /// Whether it uses a server as a client does, and reads a client's variables.
    pub(crate) fn is_of_a_client(&self) -> bool {
        match self {
            Command::Run(_)
            | Command::Status(_)
            | Command::Inspect(_)
            | Command::Locks(_)
            | Command::Acquire(_)
            | Command::Keep(_)
            | Command::Release(_)
            | Command::Waiters(_)
            | Command::Bench(_) => true,
            Command::Serve(_)
            | Command::Demo(_)
            | Command::HashSecret
            | Command::Man(_)
            | Command::Completions(_)
            | Command::RunGuard => false,
        }
    }
}

const SERVE_HELP: &str = "\
An argument beats the environment, the environment beats the file; a setting has the same name in all three. \
Without --data-dir and --ephemeral the node keeps its data in $STATE_DIRECTORY, which systemd sets, or under \
$XDG_STATE_HOME/fairlock (~/.local/state/fairlock). \
It prints `listening on ADDRESS` on standard output; port 0 takes a free port. \
SIGINT or SIGTERM stops it in good order, a second one at once.\n\n\
A cluster is several servers with the same --peers, each told by --node which of them it is: \
`fairlock serve --peers a:7420,b:7420,c:7420 --node a:7420` on the host a, and so on. The first that lives serves, \
the others have a copy of all locks and take over. Beyond one machine they need a secret (--secret-file, or \
--cluster-secret-file where clients have --users-file).";

const STATUS_HELP: &str = "\
Asks the given servers and every node that one of them names. STANDBYS are those that have a copy of everything \
and can take over. A node that does not answer is `down`, with the reason.\n\n\
Exit code 69 if no node answered; 1, with a warning, if more than one is active.";

const RUN_HELP: &str = "\
COMMAND gets FAIRLOCK_KEY and FAIRLOCK_TOKEN in its environment. Signals are passed on to its process group. \
The lock is released when COMMAND and what it left of its process group have ended. If the lock is lost before \
(the server cannot be reached, or an operator freed it), the group gets SIGTERM when an eighth of the lease is left \
and SIGKILL at a sixteenth. If `fairlock run` itself is killed, so is the group. On a terminal it says after five seconds \
what it waits for, and who holds that. A run inside a run of the same key would wait for itself, and is refused unless --wait \
or --no-wait limits it.\n\n\
Exit code: that of COMMAND; 128+n if signal n ended it; 126 it cannot be executed; 127 not found; 75 the lock was not \
had; 74 it was lost; 64 wrong arguments; 69 no server reached; 77 refused.";

const ACQUIRE_HELP: &str = "\
The token alone is printed on standard output. The lock is held until `fairlock release KEY TOKEN` or until the lease \
ends; `fairlock keep KEY TOKEN` lets the lease begin again. Exit code 75 if the lock was not had.";

const KEYS_HELP: &str = "\
Keys are shown as they are typed, in quotes where a shell wants them. One with bytes that cannot be shown is spelled as on \
the wire, %XX for such a byte. With --json they are exact: text, or hex digits in `key_hex` where they are no text.";

const HASH_SECRET_HELP: &str = "\
On a terminal the secret is asked for twice and not shown; otherwise all of standard input is the secret, without a line end \
after it. The line goes into the file that `fairlock serve --users-file` names. Clients then say NAME:SECRET where they \
would say the server's secret.";

const BENCH_HELP: &str = "\
Without --workload all workloads run one after the other. The first four run for --seconds each; the others have a \
size instead, which --count changes. With --connections or --depth alone a load of pairs runs with these. What is \
measured on a machine that is busy with something else is said to be so. Ctrl+C ends it with the figures so far.";

const COMPLETIONS_HELP: &str = "\
For this shell alone: `source <(fairlock completions bash)`, the same with zsh, `fairlock completions fish | source`. \
For all: packaging/install.sh puts them where the shells look.";

/// How to reach a server.
#[derive(Args, Debug, Clone)]
pub(crate) struct Connection {
    /// One address or several, in any order [default: 127.0.0.1:7420]
    #[arg(long, value_name = "A,B", env = "FAIRLOCK_SERVERS", global = false)]
    pub(crate) servers: Option<String>,
    /// A file that holds the server's secret, or NAME:SECRET of a user; FAIRLOCK_SECRET can hold the same [default: no secret]
    #[arg(long, value_name = "FILE", env = "FAIRLOCK_SECRET_FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// A PEM file with the CAs that have to have signed the servers' certificates; any of these options means TLS [default: no TLS]
    #[arg(long, value_name = "FILE", env = "FAIRLOCK_CA_FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A PEM file with the certificate to show where the servers ask for one [default: none]
    #[arg(long, value_name = "FILE", env = "FAIRLOCK_CERT_FILE")]
    pub(crate) cert_file: Option<PathBuf>,
    /// A PEM file with the key of --cert-file [default: none]
    #[arg(long, value_name = "FILE", env = "FAIRLOCK_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The name that the servers' certificates have to be for [default: the host of each address]
    #[arg(long, value_name = "NAME", env = "FAIRLOCK_SERVER_NAME")]
    pub(crate) server_name: Option<String>,
    /// TLS, trusting the CAs that the system trusts unless --ca-file is given [default: no TLS]
    #[arg(long, env = "FAIRLOCK_TLS")]
    pub(crate) tls: bool,
}

/// Which lock, and how to wait for it.
#[derive(Args, Debug, Clone)]
pub(crate) struct Want {
    /// How long the lock lasts without being kept: generous, but no longer than a dead holder may block the others
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::lease, allow_hyphen_values = true)]
    pub(crate) lease: Duration,
    /// How long to wait for the lock; 0 waits without limit
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = values::wait, allow_hyphen_values = true, conflicts_with = "no_wait")]
    pub(crate) wait: Wait,
    /// Do not wait at all: take the lock if it is free [default: wait]
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// How long to go on trying where no server can be reached, as far as --wait allows
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = values::time, allow_hyphen_values = true)]
    pub(crate) retry_for: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) want: Want,
    /// Renew the lease at a third of it, as long as COMMAND runs (a lease of at least 1 s) [default: on]
    #[arg(long, overrides_with = "no_keep_alive")]
    keep_alive: bool,
    /// Do not renew the lease: COMMAND has to be done in time [default: renew]
    #[arg(long)]
    no_keep_alive: bool,
    /// What to do with COMMAND when the lock is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Stop)]
    pub(crate) on_lost: OnLost,
    /// The exit code when the lock was not had in time
    #[arg(long, value_name = "CODE", default_value_t = exit::NOT_HAD, allow_hyphen_values = true)]
    pub(crate) timeout_code: u8,
    /// The exit code when the lock was lost
    #[arg(long, value_name = "CODE", default_value_t = exit::LOST, allow_hyphen_values = true)]
    pub(crate) lost_code: u8,
    /// What to lock
    #[arg(value_parser = key_parser())]
    pub(crate) key: Key,
    /// What to run, and its arguments
    #[arg(last = true, required = true, value_names = ["COMMAND", "ARG"])]
    pub(crate) command: Vec<OsString>,
}

impl Run {
    pub(crate) fn keep_alive(&self) -> bool {
        !self.no_keep_alive
    }
}

/// What `run` does when the lock is lost.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// Stop COMMAND: SIGTERM, then SIGKILL
    Stop,
    /// Say so and leave COMMAND alone
    Ignore,
}

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) want: Want,
    /// What to lock
    #[arg(value_parser = key_parser())]
    pub(crate) key: Key,
}

#[derive(Args, Debug)]
pub(crate) struct Keep {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How long the lock lasts from now on, unless it would have lasted longer anyway
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::lease, allow_hyphen_values = true)]
    pub(crate) lease: Duration,
    /// What is locked
    #[arg(value_parser = key_parser())]
    pub(crate) key: Key,
    /// The fencing token of the lock
    #[arg(value_parser = values::token, allow_hyphen_values = true)]
    pub(crate) token: Token,
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// What is locked
    #[arg(value_parser = key_parser())]
    pub(crate) key: Key,
    /// The fencing token of the lock
    #[arg(value_parser = values::token, allow_hyphen_values = true)]
    pub(crate) token: Token,
}

#[derive(Args, Debug)]
pub(crate) struct KeyQuery {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Print JSON; tokens are strings in it [default: a text for people]
    #[arg(long)]
    pub(crate) json: bool,
    /// What to look at
    #[arg(value_parser = key_parser())]
    pub(crate) key: Key,
}

#[derive(Args, Debug)]
pub(crate) struct Locks {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Only keys that begin with this [default: all]
    #[arg(long, value_name = "PREFIX", value_parser = prefix_parser(), allow_hyphen_values = true)]
    pub(crate) prefix: Option<Prefix>,
    /// Print JSON, one object with all rows; tokens are strings in it [default: a table]
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Print JSON: one object, or with --watch one for each second [default: a text for people]
    #[arg(long)]
    pub(crate) json: bool,
    /// Show it again each second until Ctrl+C [default: once]
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How many connections [default: as the workload says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50_000), allow_hyphen_values = true)]
    pub(crate) connections: Option<u32>,
    /// How many requests are under way on each connection [default: as the workload says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), allow_hyphen_values = true)]
    pub(crate) depth: Option<u32>,
    /// Which workloads run [default: all]
    #[arg(long, value_name = "NAME,…", value_enum, value_delimiter = ',')]
    pub(crate) workload: Vec<crate::bench::Name>,
    /// How many keys are held, requests wait or leases end [default: as the workload says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000), allow_hyphen_values = true)]
    pub(crate) count: Option<u32>,
    /// How long each workload of pairs runs
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = bench_seconds, allow_hyphen_values = true)]
    pub(crate) seconds: Duration,
    /// Print JSON: one object with all workloads [default: a table]
    #[arg(long)]
    pub(crate) json: bool,
}

fn bench_seconds(text: &str) -> Result<Duration, String> {
    values::lease(text).and_then(|time| {
        if time <= Duration::from_secs(3600) {
            Ok(time)
        } else {
            Err("a workload runs for at most 3600 seconds".to_owned())
        }
    })
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Without the pauses that leave time to read [default: about half a minute]
    #[arg(long)]
    pub(crate) fast: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Where to write the pages, as fairlock.1, fairlock-run.1 and so on [default: the page of `fairlock` on standard output]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell that completes what is typed.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Keys are any bytes, so they are read from the argument as the operating system gives it.
fn key_parser() -> impl clap::builder::TypedValueParser<Value = Key> {
    use clap::builder::TypedValueParser as _;
    clap::builder::OsStringValueParser::new().try_map(|text| values::key(&text))
}

fn prefix_parser() -> impl clap::builder::TypedValueParser<Value = Prefix> {
    use clap::builder::TypedValueParser as _;
    clap::builder::OsStringValueParser::new().try_map(|text| values::prefix(&text))
}

/// The whole command line as clap knows it.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Reads the command line (without the name of the program).
///
/// `Ok` holds what to do, or the help or version text that was asked for.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    let mut words = vec![OsString::from("fairlock")];
    words.extend(arguments);
    let is_implied = is_serve(words.get(1));
    if is_implied {
        words.insert(1, "serve".into());
    }
    let mut command = without_empty_environment(command());
    let parsed = command
        .try_get_matches_from_mut(&words)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => Ok(Parsed::Command(Box::new(cli.command))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Parsed::Text(error)),
            _ => Err(Failure::usage(hints::sentence(
                &command, &words, is_implied, &error,
            ))),
        },
    }
}

/// What the command line asks for.
pub(crate) enum Parsed {
    /// To do something.
    Command(Box<Command>),
    /// To explain something.
    Text(clap::Error),
}

/// Whether the words mean `serve` without saying so.
fn is_serve(first: Option<&OsString>) -> bool {
    match first.and_then(|word| word.to_str()) {
        None => first.is_none(),
        Some("-h" | "--help" | "-V" | "--version") => false,
        Some(word) => word.starts_with('-'),
    }
}

/// An empty variable counts as one that is not set, as compose files and shells leave them behind.
fn without_empty_environment(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|subcommand| {
        subcommand.mut_args(|argument| {
            let empty = argument
                .get_env()
                .is_some_and(|name| std::env::var_os(name).is_some_and(|value| value.is_empty()));
            if empty {
                argument.env(clap::builder::Resettable::Reset)
            } else {
                argument
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ArgAction;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_option_says_its_default() {
        for subcommand in command().get_subcommands().filter(|one| !one.is_hide_set()) {
            for argument in subcommand.get_arguments() {
                if argument.is_positional()
                    || matches!(argument.get_action(), ArgAction::Help | ArgAction::Version)
                {
                    continue;
                }
                let help = argument
                    .get_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let has_default = !argument.get_default_values().is_empty()
                    && !argument.is_hide_default_value_set();
                assert!(
                    has_default || help.contains("[default: "),
                    "{} --{} says no default: {help}",
                    subcommand.get_name(),
                    argument.get_id()
                );
            }
        }
    }

    fn failure(words: &str) -> Failure {
        match parse(words.split(' ').map(OsString::from)) {
            Err(failure) => failure,
            Ok(_) => panic!("{words} was accepted"),
        }
    }

    #[test]
    fn a_wrong_argument_gets_one_sentence() {
        for (words, expected) in [
            ("acquire --lease NaN k", "--lease"),
            ("acquire --lease -1 k", "--lease"),
            ("acquire --leese 1 k", "--lease"),
            ("acquire", "<KEY>"),
            ("acquier k", "acquire"),
            ("release k", "<TOKEN>"),
            ("release k -5", "<TOKEN>"),
            ("run k", "COMMAND"),
            ("run k true", "; COMMAND goes behind --"),
            ("run k", "; usage: fairlock run "),
            ("run k", "<KEY> -- <COMMAND>"),
            ("run k --timeout 3 -- true", "; perhaps --wait"),
            ("run --ttl=3 k -- true", "; perhaps --lease"),
            ("acquire -n k", "; perhaps --no-wait"),
            ("keep k 1 --ttl 3", "; perhaps --lease"),
            (
                "--servers a:1 status --json",
                "; the options of a command stand behind it: fairlock status --servers …",
            ),
            (
                "--secret-file f status",
                "; the options of a command stand behind it: fairlock status --secret-file …",
            ),
            ("--secret=x status", "; perhaps --secret-file"),
            (
                "--lease 3",
                "; --lease is an option of a command, and stands behind it",
            ),
            (
                "lock k",
                "; perhaps `fairlock run KEY -- COMMAND`, or `fairlock acquire KEY`",
            ),
            ("unlock k 4", "; perhaps `fairlock release KEY TOKEN`"),
            ("--keep-state false", "; say --keep-state=false"),
            ("serve --ephemeral true", "; say --ephemeral=true"),
            ("acquire --wait 1 --no-wait k", "--no-wait"),
            ("run --on-lost explode k -- true", "stop, ignore"),
            ("run --timeout-code 256 k -- true", "--timeout-code"),
            ("bench --connections 0", "--connections"),
        ] {
            let failure = failure(words);
            assert_eq!(failure.code, exit::USAGE);
            assert!(
                failure.message.contains(expected),
                "{words}: {}",
                failure.message
            );
            let has_dashes = words.contains(" -- ");
            assert!(
                !has_dashes || !failure.message.contains("COMMAND goes behind"),
                "{words}: {}",
                failure.message
            );
            assert!(
                !failure.message.contains('\n'),
                "{words}: {}",
                failure.message
            );
        }
    }
}
