//! Starts the real binary as users do, and looks at it from outside: what it says, what it costs, how
//! it ends. The binary is `FAIRLOCK_BIN`, or the one that was built beside these tests; nothing here
//! builds it.

// The client of the tests that run a node in their own process.
#[path = "../../../core/tests/node/raw.rs"]
mod raw;

pub mod bystander;
pub mod cluster;
pub mod history;
pub mod load;
pub mod network;

pub use raw::{LIMIT, Peer, token, until, until_waiting};

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The binary under test.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("FAIRLOCK_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a process knows its program");
    let built = test
        .ancestors()
        .nth(2)
        .map(|folder| folder.join("fairlock"));
    built.filter(|path| path.exists()).unwrap_or_else(|| {
        panic!(
            "no binary beside {}: build the workspace, or set FAIRLOCK_BIN",
            test.display()
        )
    })
}

/// A running `fairlock serve`. Dropping it kills it.
pub struct Node {
    process: Child,
    address: SocketAddr,
    /// Kept open, so that the node can go on writing.
    output: BufReader<ChildStdout>,
    /// Where its metrics are.
    admin: Option<String>,
}

impl Node {
    /// Starts one on a free port without a folder, with further arguments.
    #[must_use]
    pub fn ephemeral(arguments: &[&str]) -> Node {
        Node::start(&[&["--ephemeral"], arguments].concat())
    }

    /// Starts one on a free port with a folder.
    #[must_use]
    pub fn on(folder: &Path) -> Node {
        Node::start(&["--data-dir", folder.to_str().expect("a plain path")])
    }

    fn start(arguments: &[&str]) -> Node {
        let mut command = serve();
        command.args(["--listen", "127.0.0.1:0"]).args(arguments);
        Node::spawn(command)
    }

    /// Starts what `command` says, and waits until it listens.
    #[must_use]
    pub fn spawn(mut command: Command) -> Node {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it writes text");
        let address = line
            .trim_end()
            .strip_prefix("listening on ")
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("instead of its address: {line:?}"));
        Node {
            process,
            address,
            output,
            admin: None,
        }
    }

    /// Starts one on a free port without a folder, with further arguments, that shows its metrics.
    #[must_use]
    pub fn watched(arguments: &[&str]) -> Node {
        let mut command = serve();
        command.args(["--ephemeral", "--listen", "127.0.0.1:0"]);
        command.args(arguments);
        Node::spawn_watched(command)
    }

    /// As [`Node::spawn`], and shows its metrics.
    #[must_use]
    pub fn spawn_watched(mut command: Command) -> Node {
        command.args(["--admin", "127.0.0.1:0"]);
        let mut node = Node::spawn(command);
        let mut line = String::new();
        node.output.read_line(&mut line).expect("it writes text");
        let admin = line.trim_end().strip_prefix("admin on ");
        node.admin = Some(admin.expect("it says where").to_owned());
        node
    }

    /// A sample of its metrics, by name and labels.
    #[must_use]
    pub fn metric(&self, series: &str) -> u64 {
        let admin = self.admin.as_ref().expect("it was started with metrics");
        let mut socket = TcpStream::connect(admin).expect("it listens");
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        socket
            .read_to_string(&mut answer)
            .expect("it answers in text");
        let value = answer.lines().find_map(|line| line.strip_prefix(series));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {series} in {answer}"))
    }

    /// How often a limit was met.
    #[must_use]
    pub fn reached(&self, limit: &str) -> u64 {
        self.metric(&format!(
            "fairlock_limits_reached_total{{limit=\"{limit}\"}}"
        ))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new connection to it.
    #[must_use]
    pub fn connect(&self) -> Peer {
        Peer::connect(self.address)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Stops it as a suspended machine does, and returns when all its threads stand still.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let begin = Instant::now();
        let threads = format!("/proc/{}/task", self.process.id());
        let stands_still = |thread: std::io::Result<std::fs::DirEntry>| {
            let stat =
                thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat")));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        while !std::fs::read_dir(&threads)
            .expect("it runs")
            .all(stands_still)
        {
            assert!(begin.elapsed() < LIMIT, "it does not stand still");
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it has ended, and what it said of it.
    pub fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("it is our child") {
                return status;
            }
            assert!(begin.elapsed() < LIMIT, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is our child");
        self.wait();
    }

    /// Resident memory in bytes.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let status = self.proc("status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("Linux says so");
        let kib: u64 = line
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number");
        kib * 1024
    }

    /// Processor time used so far.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        self.processor_times().iter().sum()
    }

    /// The same in the program itself and, for it, in the system.
    #[must_use]
    pub fn processor_times(&self) -> [Duration; 2] {
        let stat = self.proc("stat");
        let (_, fields) = stat.rsplit_once(')').expect("the name stands in brackets");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        [11, 12].map(|place| {
            let ticks: u64 = fields[place].parse().expect("a number");
            Duration::from_millis(ticks * 10)
        })
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).expect("it runs")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The command `fairlock serve`, free of the settings of whoever runs the tests.
#[must_use]
pub fn serve() -> Command {
    let mut command = Command::new(binary());
    command.arg("serve");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAIRLOCK_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command that has to end by itself, and says little.
#[must_use]
pub fn run(mut command: Command) -> Output {
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    let begin = Instant::now();
    while process.try_wait().expect("it is our child").is_none() {
        if begin.elapsed() > LIMIT {
            let _ = process.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    process.wait_with_output().expect("it has ended")
}

/// Says that a part of a test cannot be done here. `tests/run` counts these and shows them at its end.
pub fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    if let Some(path) = std::env::var_os("FAIRLOCK_SKIPPED") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let written = file.and_then(|mut file| file.write_all(format!("{why}\n").as_bytes()));
        written.expect("the list of what was skipped can be written");
    }
}

/// A folder of its own for a test, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes the name of a folder that does not exist.
    #[must_use]
    pub fn new(name: &str) -> Folder {
        let name = format!("fairlock-processes-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads what comes until the end, for at most the limit.
pub fn drain(peer: &Peer) {
    let mut sink = vec![0; 1 << 20];
    let begin = Instant::now();
    while peer.socket().read(&mut sink).is_ok_and(|count| count > 0) {
        assert!(begin.elapsed() < LIMIT);
    }
}
