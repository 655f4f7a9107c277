//! What else the machine does while a load runs, and how much memory the server has: whatever the kernel
//! tells of processes, where there is such a kernel. Nothing in here fails; what cannot be read is not known.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The kernel counts processor time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// More than this share of a core used by others, taken away by the host, or between the parts of a run
/// spoils its figures.
const OTHERS: f64 = 0.15;
const STOLEN: f64 = 0.02;
const SPREAD: f64 = 0.2;

/// The process of a server on this machine.
#[derive(Clone, Copy)]
pub(super) struct Process(u32);

impl Process {
    /// The one that listens on `address`, if that is here and may be looked at.
    pub(super) fn listening_on(address: &str) -> Option<Process> {
        let mut addresses = address.to_socket_addrs().ok()?;
        let inode = addresses.find_map(listener)?;
        let wanted = format!("socket:[{inode}]");
        let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.find(|id: &u32| has_descriptor(*id, &wanted))
            .map(Process)
    }

    /// Bytes of memory that it has now.
    pub(super) fn memory(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    }

    fn processor_time(self) -> Option<u64> {
        processor_time(&self.0.to_string())
    }
}

/// The inode of the socket that listens on an address.
fn listener(address: SocketAddr) -> Option<u64> {
    const LISTENS: &str = "0A";
    let port = format!(":{:04X}", address.port());
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let inode = text.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let listens = fields.nth(1)?.ends_with(&port) && fields.nth(1)? == LISTENS;
            // The inode is the tenth field.
            listens.then(|| fields.nth(5)?.parse().ok()).flatten()
        });
        if inode.is_some() && address.ip().is_loopback() {
            return inode;
        }
    }
    None
}

fn has_descriptor(process: u32, wanted: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    let mut links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link.to_str() == Some(wanted))
}

/// Ticks that a process has used.
fn processor_time(process: &str) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before the last bracket may hold anything.
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let times: Vec<u64> = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    (times.len() == 2).then(|| times.iter().sum())
}

/// What the whole machine has used and lost to its host.
fn machine_time() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace();
    let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    let used = ticks.first()? + ticks.get(1)? + ticks.get(2)?;
    Some((used, *ticks.get(7)?))
}

/// A look at the machine from the beginning of a load to its end.
pub(super) struct Watch {
    server: Option<Process>,
    begun: Instant,
    counters: Option<Counters>,
    /// Pairs at each look.
    progress: Vec<(Duration, u64)>,
}

#[derive(Clone, Copy)]
struct Counters {
    machine: u64,
    stolen: u64,
    ours: u64,
}

/// What spoils figures; shares of one core, and of the median rate.
#[derive(Clone, Copy, Default)]
pub(super) struct Noise {
    pub(super) others: Option<f64>,
    pub(super) stolen: Option<f64>,
    pub(super) spread: Option<f64>,
}

impl Watch {
    pub(super) fn new(server: Option<Process>) -> Watch {
        Watch {
            server,
            begun: Instant::now(),
            counters: Counters::read(server),
            progress: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, passed: Duration, pairs: u64) {
        self.progress.push((passed, pairs));
    }

    pub(super) fn end(self) -> Noise {
        let ticks = (self.begun.elapsed().as_secs_f64() / TICK.as_secs_f64()).max(1.0);
        let both = self.counters.zip(Counters::read(self.server));
        let share = |of: fn(Counters) -> u64| {
            both.map(|(before, after)| of(after).saturating_sub(of(before)) as f64 / ticks)
        };
        let others = |counters: Counters| counters.machine.saturating_sub(counters.ours);
        Noise {
            // Without knowing what the server uses, nothing can be said of the others.
            others: self.server.and(share(others)),
            stolen: share(|counters| counters.stolen),
            spread: spread(&self.progress),
        }
    }
}

impl Counters {
    fn read(server: Option<Process>) -> Option<Counters> {
        let (machine, stolen) = machine_time()?;
        let server = server.and_then(Process::processor_time).unwrap_or(0);
        Some(Counters {
            machine,
            stolen,
            ours: processor_time("self")? + server,
        })
    }
}

impl Noise {
    /// Why the figures are not to be trusted, in words.
    pub(super) fn reasons(&self) -> Vec<String> {
        let too_much = |share: Option<f64>, limit: f64| share.filter(|share| *share > limit);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut reasons = Vec::new();
        if let Some(others) = too_much(self.others, OTHERS) {
            reasons.push(format!(
                "other processes used {} of a core",
                percent(others)
            ));
        }
        if let Some(stolen) = too_much(self.stolen, STOLEN) {
            reasons.push(format!("the host took away {} of a core", percent(stolen)));
        }
        if let Some(spread) = too_much(self.spread, SPREAD) {
            reasons.push(format!("its parts differ by {}", percent(spread)));
        }
        reasons
    }
}

/// How far the rates of the fifths of a run lie apart, as a part of the one in the middle.
fn spread(progress: &[(Duration, u64)]) -> Option<f64> {
    const PARTS: usize = 5;
    let each = progress.len() / PARTS;
    if each < 2 {
        return None;
    }
    let mut rates: Vec<f64> = (0..PARTS)
        .map(|part| {
            let (begin, before) = progress[part * each];
            let (end, after) = progress[(part + 1) * each - 1];
            (after - before) as f64 / (end - begin).as_secs_f64().max(1e-9)
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    (rates[PARTS / 2] > 0.0).then(|| (rates[PARTS - 1] - rates[0]) / rates[PARTS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_on_this_machine_is_found_by_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let process = Process::listening_on(&address).expect("it is this process");
        assert_eq!(process.0, std::process::id());
        assert!(process.memory().is_some_and(|bytes| bytes > 100_000));
        drop(listener);
        assert!(Process::listening_on(&address).is_none());
    }

    #[test]
    fn a_run_whose_parts_are_alike_is_trusted_and_one_that_stood_still_is_not() {
        let even: Vec<_> = (0..50)
            .map(|step| (Duration::from_millis(100 * step), 1000 * step))
            .collect();
        let mut watch = Watch::new(None);
        watch.progress.clone_from(&even);
        let noise = Noise {
            stolen: None,
            ..watch.end()
        };
        assert_eq!(noise.reasons(), Vec::<String>::new());
        let stood = even
            .iter()
            .map(|(time, pairs)| (*time, (*pairs).min(25_000)));
        assert!(spread(&stood.collect::<Vec<_>>()).is_some_and(|spread| spread > 0.9));
    }
}
