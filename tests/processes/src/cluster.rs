//! Several real nodes that know each other, each at an address of its own that stays the same when it is
//! started again, with what it logs in a file.

use crate::{Folder, LIMIT, Node, Peer, serve};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The nodes of a cluster, in the order of their priority. Dropping it kills them, and shows what they
/// logged if the test has failed.
pub struct Cluster {
    addresses: Vec<SocketAddr>,
    nodes: Vec<Option<Node>>,
    arguments: Vec<String>,
    folder: Folder,
    /// Put before the command line of a node, such as the network it is to run in.
    prefix: Box<dyn Fn(usize) -> Vec<String> + Send + Sync>,
}

impl Cluster {
    /// A cluster on loopback that runs, with every node in its place.
    #[must_use]
    pub fn start(size: usize) -> Cluster {
        Cluster::start_with(size, &[])
    }

    /// The same with further arguments for every node.
    #[must_use]
    pub fn start_with(size: usize, arguments: &[&str]) -> Cluster {
        let mut cluster = Cluster::planned(size, arguments);
        for index in 0..size {
            cluster.bring_up(index);
        }
        cluster.settle(0);
        cluster
    }

    /// Nodes that do not run yet, at addresses that were free a moment ago.
    #[must_use]
    pub fn planned(size: usize, arguments: &[&str]) -> Cluster {
        let listeners: Vec<TcpListener> = (0..size)
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
            .collect();
        let addresses = listeners
            .iter()
            .map(|listener| listener.local_addr().expect("it is bound"))
            .collect();
        Cluster::at(addresses, arguments, |_| Vec::new())
    }

    /// Nodes at these addresses, whose command lines begin with what `prefix` says.
    #[must_use]
    pub fn at(
        addresses: Vec<SocketAddr>,
        arguments: &[&str],
        prefix: impl Fn(usize) -> Vec<String> + Send + Sync + 'static,
    ) -> Cluster {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new(&format!("cluster-{number}"));
        fs::create_dir_all(&folder.0).expect("the folder can be made");
        Cluster {
            nodes: addresses.iter().map(|_| None).collect(),
            addresses,
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
            folder,
            prefix: Box::new(prefix),
        }
    }

    /// The list of nodes, as `--peers` takes it.
    #[must_use]
    pub fn list(&self) -> String {
        self.servers().join(",")
    }

    /// The addresses, as a client takes them.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        self.addresses.iter().map(SocketAddr::to_string).collect()
    }

    /// Where a node listens.
    #[must_use]
    pub fn address(&self, index: usize) -> SocketAddr {
        self.addresses[index]
    }

    /// The folder in which a node keeps its term.
    #[must_use]
    pub fn data_dir(&self, index: usize) -> PathBuf {
        self.folder.0.join(format!("data-{index}"))
    }

    /// A node that runs.
    #[must_use]
    pub fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("it runs")
    }

    /// The command that starts a node.
    #[must_use]
    pub fn command(&self, index: usize) -> Command {
        let own = serve();
        let prefix = (self.prefix)(index);
        let mut command = match prefix.split_first() {
            None => own,
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command
                    .args(rest)
                    .arg(own.get_program())
                    .args(own.get_args());
                command
            }
        };
        command
            .args(["--peers", &self.list()])
            .args(["--node", &self.addresses[index].to_string()])
            .arg("--data-dir")
            .arg(self.data_dir(index))
            .args(&self.arguments);
        command
    }

    /// Starts a node, and waits until it listens.
    pub fn bring_up(&mut self, index: usize) {
        let command = self.command(index);
        self.bring_up_as(index, command);
    }

    /// Starts a node with a command of the test's own.
    pub fn bring_up_as(&mut self, index: usize, mut command: Command) {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file(index));
        let log: File = log.expect("a file can be made");
        command.stderr(Stdio::from(log));
        self.nodes[index] = Some(Node::spawn(command));
    }

    /// Ends a node as a power cut would.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].take().expect("it runs").kill();
    }

    /// Stops a node in order, and returns how long it took.
    pub fn stop(&mut self, index: usize) -> Duration {
        let mut node = self.nodes[index].take().expect("it runs");
        let begin = Instant::now();
        node.signal(Signal::INT);
        let status = node.wait();
        assert!(status.success(), "{status}");
        begin.elapsed()
    }

    /// What a node has logged, over all its runs.
    #[must_use]
    pub fn log(&self, index: usize) -> String {
        fs::read_to_string(self.log_file(index)).unwrap_or_default()
    }

    fn log_file(&self, index: usize) -> PathBuf {
        self.folder.0.join(format!("log-{index}"))
    }

    /// Waits until a node has logged this.
    pub fn until_logged(&self, index: usize, text: &str) {
        let begin = Instant::now();
        while !self.log(index).contains(text) {
            assert!(begin.elapsed() < LIMIT, "node {index} does not say: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What a node says of itself.
    #[must_use]
    pub fn status(&self, index: usize) -> String {
        Peer::connect(self.addresses[index]).ask("S")
    }

    /// Waits until a node's status is as wanted.
    pub fn until(&self, index: usize, wanted: impl Fn(&str) -> bool) -> String {
        crate::until(&mut Peer::connect(self.addresses[index]), "S", wanted)
    }

    /// Waits until this node serves, and all others that run have a complete copy of its state.
    pub fn settle(&self, active: usize) {
        self.settle_among(active, |_| true);
    }

    /// The same for a part of the nodes.
    pub fn settle_among(&self, active: usize, counts: impl Fn(usize) -> bool) {
        let others: Vec<usize> = (0..self.nodes.len())
            .filter(|index| *index != active && counts(*index) && self.nodes[*index].is_some())
            .collect();
        self.until(active, |status| {
            let standbys = field(status, "standbys");
            field(status, "role") == "active"
                && others.iter().all(|index| {
                    let address = self.addresses[*index].to_string();
                    standbys.split(',').any(|standby| standby == address)
                })
        });
        let address = self.addresses[active].to_string();
        for index in others {
            self.until(index, |status| {
                field(status, "role") == "standby" && field(status, "active") == address
            });
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for index in 0..self.nodes.len() {
                eprintln!(
                    "── node {index} at {}:\n{}",
                    self.addresses[index],
                    self.log(index)
                );
            }
        }
    }
}

/// A field of a status line.
#[must_use]
pub fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status
        .split(' ')
        .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("no {name} in {status}"))
}
