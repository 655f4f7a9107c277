//! A network of several hosts on one machine, whose cables can be cut, on both ways or on one: a network
//! namespace for each node, a bridge between them, and this process at the bridge. Needs root.

use crate::skip;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const PORT: u16 = 7420;

/// The hosts and what connects them. Dropping it takes all of it away, so whatever runs in it has to be
/// dropped before.
pub struct Network {
    /// Begins every name, and is told apart from that of other tests by its number.
    name: String,
    subnet: [u8; 2],
    size: usize,
}

/// Where packets can come from or go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// A node, by its place.
    Node(usize),
    /// This process.
    Clients,
}

impl Network {
    /// Lays a network. `None`, and said so, where that is not allowed.
    #[must_use]
    pub fn lay(size: usize) -> Option<Network> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() * 8 + NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Network {
            name: format!("flk{}", number % 1_000_000),
            subnet: [180 + (number % 60) as u8, (number / 60 % 250) as u8],
            size,
        };
        let bridge = &network.name;
        let own = format!("{}/24", network.ip(Host::Clients));
        let steps = [
            format!("link add {bridge} type bridge"),
            format!("addr add {own} dev {bridge}"),
            format!("link set {bridge} up"),
        ];
        if !steps.iter().all(|step| quiet("ip", step)) || !quiet("nft", "list tables") {
            skip("cut networks: network namespaces and nft need root");
            return None;
        }
        for index in 0..size {
            network.lay_to(index);
        }
        Some(network)
    }

    fn lay_to(&self, index: usize) {
        let (bridge, space) = (&self.name, self.space(index));
        let (near, far) = (format!("{space}a"), format!("{space}b"));
        let address = self.ip(Host::Node(index));
        for step in [
            format!("netns add {space}"),
            format!("link add {near} type veth peer name {far} netns {space}"),
            format!("link set {near} master {bridge} up"),
            format!("-n {space} addr add {address}/24 dev {far}"),
            format!("-n {space} link set {far} up"),
            format!("-n {space} link set lo up"),
        ] {
            assert!(quiet("ip", &step), "ip {step}");
        }
        self.heal_at(index);
    }

    fn space(&self, index: usize) -> String {
        format!("{}n{index}", self.name)
    }

    fn ip(&self, host: Host) -> Ipv4Addr {
        let last = match host {
            Host::Node(index) => 1 + index as u8,
            Host::Clients => 254,
        };
        Ipv4Addr::new(10, self.subnet[0], self.subnet[1], last)
    }

    /// Where the nodes listen.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |index| SocketAddr::new(IpAddr::V4(self.ip(Host::Node(index))), PORT);
        (0..self.size).map(address).collect()
    }

    /// What has a program run on the host of a node.
    pub fn prefix(&self) -> impl Fn(usize) -> Vec<String> + Send + Sync + 'static {
        let name = self.name.clone();
        move |index| {
            let space = format!("{name}n{index}");
            ["ip", "netns", "exec", &space].map(str::to_owned).to_vec()
        }
    }

    /// From now on nothing comes through from one to the other; the way back stays open.
    pub fn cut_one_way(&self, from: Host, to: Host) {
        match (from, to) {
            (_, Host::Node(index)) => {
                self.filter(
                    index,
                    &format!("add rule inet cut in ip saddr {} drop", self.ip(from)),
                );
            }
            (Host::Node(index), Host::Clients) => {
                self.filter(
                    index,
                    &format!("add rule inet cut out ip daddr {} drop", self.ip(to)),
                );
            }
            (Host::Clients, Host::Clients) => {}
        }
    }

    /// From now on nothing comes through between two.
    pub fn cut(&self, one: Host, other: Host) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// From now on so many packets in a hundred are lost on their way to a node.
    pub fn lose(&self, to: usize, percent: u32) {
        self.filter(
            to,
            &format!("add rule inet cut in numgen random mod 100 < {percent} drop"),
        );
    }

    /// Everything comes through again.
    pub fn heal(&self) {
        for index in 0..self.size {
            self.heal_at(index);
        }
    }

    fn heal_at(&self, index: usize) {
        for step in [
            "add table inet cut",
            "delete table inet cut",
            "add table inet cut",
            "add chain inet cut in { type filter hook input priority 0 ; }",
            "add chain inet cut out { type filter hook output priority 0 ; }",
        ] {
            self.filter(index, step);
        }
    }

    fn filter(&self, index: usize, step: &str) {
        let step = format!("netns exec {} nft {step}", self.space(index));
        assert!(quiet("ip", &step), "ip {step}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for index in 0..self.size {
            quiet("ip", &format!("netns del {}", self.space(index)));
        }
        quiet("ip", &format!("link del {}", self.name));
    }
}

fn quiet(program: &str, arguments: &str) -> bool {
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).stdout(Stdio::null());
    command.stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
