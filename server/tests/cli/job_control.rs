//! `fairlock run` on a terminal, under a shell that does job control: Ctrl+C, Ctrl+Z, `fg`, reading
//! from the terminal. Method: `script` makes the terminal and a real `bash` sits on it; what a person
//! would type goes into its standard input.

use crate::support::{LIMIT, Running, Server, clean, eventually};
use std::process::Stdio;
use std::time::Instant;

/// A shell on a terminal of its own.
struct Shell {
    running: Running,
}

impl Shell {
    fn start(server: &Server) -> Shell {
        let mut command = clean(
            "script",
            ["-qec", "bash --norc --noprofile -i", "/dev/null"],
        );
        command
            .stdin(Stdio::piped())
            .env("FAIRLOCK_SERVERS", &server.address)
            .env("PS1", "")
            .env("TERM", "dumb");
        let mut shell = Shell {
            running: Running::start(command),
        };
        shell.types("set +o emacs; stty -echo; echo shell-$((1+1))\n");
        shell.sees("shell-2");
        shell.types(&format!(
            "f() {{ {} \"$@\"; }}\n",
            env!("CARGO_BIN_EXE_fairlock")
        ));
        shell
    }

    fn types(&mut self, text: &str) {
        self.running.input(text);
    }

    /// Waits for a line that contains `part`, and gives it.
    fn sees(&mut self, part: &str) -> String {
        self.sees_one_of(&[part])
    }

    /// Waits for a line that contains one of the parts, and gives it.
    fn sees_one_of(&mut self, parts: &[&str]) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let line = self.running.line();
            if parts.iter().any(|part| line.contains(part)) {
                return line;
            }
            assert!(Instant::now() < end, "{parts:?} were not seen");
        }
    }
}

/// Goal: Ctrl+C reaches the command once, and the shell gets its code and the terminal back.
#[test]
fn ctrl_c_goes_to_the_command_once() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types("f run k -- sh -c 'trap \"echo hit; n=x\\$n\" INT; echo ready-now; while [ \"$n\" = \"\" ]; do sleep 0.01; done; sleep 0.3; echo count-$n; exit 7'; echo code-$?\n");
    shell.sees("ready-now");
    shell.types("\x03");
    shell.sees("hit");
    let count = shell.sees("count-");
    assert_eq!(count.trim_end(), "count-x");
    shell.sees("code-7");
    shell.types("echo alive-$((2+2))\n");
    shell.sees("alive-4");
}

#[test]
fn ctrl_c_while_waiting_ends_the_wait() {
    let server = Server::start();
    server.takes("k");
    let mut shell = Shell::start(&server);
    shell.types("f run k -- echo it ran; echo code-$?\n");
    eventually("it waits", || server.state("k") == (true, 1));
    shell.types("\x03");
    shell.sees("code-130");
    assert_eq!(server.state("k"), (true, 0));
}

/// Goal: whoever sits at a terminal learns what is waited for, once.
#[test]
fn a_long_wait_says_for_which_key_and_who_holds_it() {
    let server = Server::start();
    server.takes("two words");
    for command in ["run 'two words' -- true", "acquire 'two words'"] {
        let mut shell = Shell::start(&server);
        shell.types(&format!("f {command}; echo code-$?\n"));
        let line = shell.sees("waiting for");
        assert!(
            line.contains("fairlock: waiting for 'two words', which "),
            "{line}"
        );
        shell.types("\x03");
        shell.sees("code-130");
    }
}

/// Goal: the command is in the foreground, so it may read from the terminal.
#[test]
fn the_command_may_read_from_the_terminal() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types("f run k -- sh -c 'echo ask-me; read answer </dev/tty; echo answer-$answer'; echo code-$?\n");
    shell.sees("ask-me");
    shell.types("forty-two\n");
    shell.sees("answer-forty-two");
    shell.sees("code-0");
}

/// Goal: Ctrl+Z stops the job as the shell expects it, and `fg` continues it, with the terminal.
#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types("f run k -- sh -c 'echo ready-now; read line; echo line-$line; exit 3'\n");
    shell.sees("ready-now");
    shell.types("\x1a");
    shell.sees("Stopped");
    shell.types("echo shell-$((3+3)); jobs\n");
    shell.sees("shell-6");
    shell.sees("Stopped");
    assert_eq!(server.state("k"), (true, 0));
    shell.types("fg\n");
    shell.sees("fairlock");
    shell.types("typed\n");
    shell.sees("line-typed");
    shell.types("echo code-$?\n");
    shell.sees("code-3");
    assert_eq!(server.state("k"), (false, 0));
}

/// Goal: a wait can be stopped and continued like any other program, and goes on waiting.
#[test]
fn ctrl_z_while_waiting_stops_the_wait_and_fg_continues_it() {
    let server = Server::start();
    let token = server.takes("k");
    let mut shell = Shell::start(&server);
    shell.types("f run k -- echo it-ran\n");
    eventually("it waits", || server.state("k") == (true, 1));
    shell.types("\x1a");
    shell.sees("Stopped");
    shell.types("fg\n");
    shell.sees("fairlock");
    eventually("it waits", || server.state("k") == (true, 1));
    assert_eq!(server.does(&["release", "k", &token]).code, 0);
    shell.sees("it-ran");
}

/// Goal: a job that stays stopped for longer than its lease does not write when it is continued.
#[test]
fn a_job_that_is_stopped_for_too_long_is_ended() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types(
        "f run --lease 1 k -- sh -c 'echo ready-now; read line; echo it-wrote'; echo code-$?\n",
    );
    shell.sees("ready-now");
    shell.types("\x1a");
    shell.sees("Stopped");
    eventually("the lease is over", || server.state("k") == (false, 0));
    shell.types("fg; echo code-$?\n");
    shell.types("typed\n");
    let line = shell.sees_one_of(&["code-74", "it-wrote"]);
    assert!(line.contains("code-74"), "{line}");
}

#[test]
fn nested_runs_hand_the_terminal_on() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    let binary = env!("CARGO_BIN_EXE_fairlock");
    shell.types(&format!(
        "f run outer -- sh -c '{binary} run inner -- sh -c \"echo ask-me; read a </dev/tty; echo inner-\\$a\"; echo ask-too; read b </dev/tty; echo outer-$b'\n"
    ));
    shell.sees("ask-me");
    shell.types("one\n");
    shell.sees("inner-one");
    shell.sees("ask-too");
    shell.types("two\n");
    shell.sees("outer-two");
}

/// Goal: a job in the background that wants to read stops until it is in the foreground.
#[test]
fn a_job_in_the_background_that_reads_stops_until_fg() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types("f run k -- sh -c 'read line </dev/tty; echo line-$line' &\n");
    eventually("it holds the lock", || server.state("k") == (true, 0));
    eventually("the shell lists it as stopped", || {
        shell.types("jobs; echo listed-$((1+2))\n");
        let mut stopped = false;
        loop {
            let line = shell.running.line();
            stopped |= line.contains("Stopped");
            if line.contains("listed-3") {
                return stopped;
            }
        }
    });
    shell.types("fg\n");
    shell.sees("run");
    shell.types("typed\n");
    shell.sees("line-typed");
}

/// Goal: a script without job control keeps the terminal after `run` has ended.
#[test]
fn a_script_has_the_terminal_back_afterwards() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    let binary = env!("CARGO_BIN_EXE_fairlock");
    shell.types(&format!(
        "sh -c '{binary} run k -- true; echo ask-me; read answer </dev/tty; echo answer-$answer'\n"
    ));
    shell.sees("ask-me");
    shell.types("here\n");
    shell.sees("answer-here");
}
