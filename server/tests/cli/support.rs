//! A server to test against, and ways to run the binary with a limit on everything.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before a test gives up.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The binary, without what the environment says about fairlock.
pub(crate) fn fairlock<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    clean(env!("CARGO_BIN_EXE_fairlock"), arguments)
}

/// Another program, started as the binary is.
pub(crate) fn clean<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAIRLOCK_") {
            command.env_remove(name);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A server in a process of its own.
pub(crate) struct Server {
    process: Running,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::start_with(&[], &[])
    }

    pub(crate) fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = fairlock(["--listen", "127.0.0.1:0", "--ephemeral"]);
        command.args(arguments).envs(environment.iter().copied());
        let mut process = Running::start(command);
        let line = process.line();
        let address = line
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("the first line is {line:?}"))
            .to_owned();
        Server { process, address }
    }

    /// The binary as a client of this server.
    pub(crate) fn fairlock<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = fairlock(arguments);
        command.env("FAIRLOCK_SERVERS", &self.address);
        command
    }

    /// Runs a client command to its end.
    pub(crate) fn does(&self, arguments: &[&str]) -> Outcome {
        outcome(self.fairlock(arguments))
    }

    /// Takes a lock and gives its token.
    pub(crate) fn takes(&self, key: &str) -> String {
        let outcome = self.does(&["acquire", key]);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.out.trim_end().to_owned()
    }

    /// Whether `key` is held, and how many wait for it.
    pub(crate) fn state(&self, key: &str) -> (bool, u64) {
        let outcome = self.does(&["inspect", "--json", key]);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let state: serde_json::Value = serde_json::from_str(&outcome.out).expect("JSON");
        let waiters = state["waiters"].as_u64().expect("a number of waiters");
        (state["state"] == "held", waiters)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn process(self) -> Running {
        self.process
    }
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit code, or minus the signal.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn outcome(command: Command) -> Outcome {
    Running::start(command).end()
}

/// A started process, killed if the test forgets it.
pub(crate) struct Running {
    child: Child,
    lines: Option<mpsc::Receiver<String>>,
    errors: Option<mpsc::Receiver<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.spawn().expect("the program is there");
        let lines = child.stdout.take().map(lines_of);
        let errors = child.stderr.take().map(lines_of);
        Running {
            child,
            lines,
            errors,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is there");
    }

    /// The next line of standard output.
    pub(crate) fn line(&mut self) -> String {
        let lines = self.lines.as_ref().expect("the output is read");
        match lines.recv_timeout(LIMIT) {
            Ok(line) => line,
            Err(error) => panic!("no line: {error}; standard error: {}", self.errors()),
        }
    }

    /// Waits for a line of standard error that contains `part`.
    pub(crate) fn error_with(&mut self, part: &str) -> String {
        let errors = self.errors.as_ref().expect("standard error is read");
        let end = Instant::now() + LIMIT;
        let mut seen = String::new();
        loop {
            match errors.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen = seen + &line + "\n",
                Err(_) => panic!("no line with {part:?} on standard error, but: {seen}"),
            }
        }
    }

    fn errors(&self) -> String {
        let errors = self
            .errors
            .as_ref()
            .map(|errors| errors.try_iter().collect::<Vec<_>>());
        errors.unwrap_or_default().join("\n")
    }

    pub(crate) fn input(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("the input is a pipe");
        input.write_all(text.as_bytes()).expect("it reads");
        input.flush().expect("it reads");
    }

    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for the end and gives what was not read before.
    pub(crate) fn end(mut self) -> Outcome {
        let status = self.status();
        let rest = |lines: Option<mpsc::Receiver<String>>| {
            let mut text = String::new();
            let end = Instant::now() + LIMIT;
            if let Some(lines) = lines {
                while let Ok(line) =
                    lines.recv_timeout(end.saturating_duration_since(Instant::now()))
                {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
            text
        };
        Outcome {
            code: code(status),
            out: rest(self.lines.take()),
            err: rest(self.errors.take()),
        }
    }

    /// Waits for the end.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            if Instant::now() > end {
                let _ = self.child.kill();
                panic!("a process did not end; standard error: {}", self.errors());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("it can be waited for")
            .is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that is stopped could not hear anything weaker.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while reader
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            let text =
                String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
            line.clear();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    receiver
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| {
        -status
            .signal()
            .expect("it has ended in one of the two ways")
    })
}

pub(crate) fn pid(number: u32) -> Pid {
    i32::try_from(number)
        .ok()
        .and_then(Pid::from_raw)
        .expect("the id of a process")
}

/// Whether a process runs: it is there and no zombie that nobody has waited for.
pub(crate) fn runs(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let state = stat.ok().and_then(|stat| {
        stat.rsplit_once(") ")
            .map(|(_, rest)| rest.starts_with(['Z', 'X']))
    });
    test_kill_process(process).is_ok() && state == Some(false)
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "it never came to pass: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder of its own for a test, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fairlock-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder for temporary files can be written");
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as an argument.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0
            .join(name)
            .to_str()
            .expect("the path is text")
            .to_owned()
    }

    /// Writes a file and gives its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.file(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
