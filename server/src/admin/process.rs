//! What the operating system says of this process: memory, processor time, descriptors.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The figures; what the system does not tell is left out.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) open_descriptors: Option<u64>,
    pub(super) most_descriptors: Option<u64>,
}

impl Figures {
    /// Reads them now.
    pub(super) fn read() -> Figures {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Figures {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes: kibibytes(&status, "VmRSS:"),
            virtual_bytes: kibibytes(&status, "VmSize:"),
            open_descriptors: descriptors(),
            most_descriptors: getrlimit(Resource::Nofile).current,
        }
    }
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

/// Newer kernels know the number; older ones have to be asked for each, which takes a while with many.
fn descriptors() -> Option<u64> {
    match fs::metadata("/proc/self/fd").map(|folder| folder.size()) {
        Ok(0) | Err(_) => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64),
        Ok(count) => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_a_running_process() {
        let before = Figures::read();
        let files: Vec<_> = (0..10)
            .map(|_| fs::File::open("/dev/null").expect("it is there"))
            .collect();
        let after = Figures::read();
        assert!(after.cpu_seconds >= before.cpu_seconds && after.cpu_seconds < 1e6);
        assert!(after.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(after.virtual_bytes >= after.resident_bytes);
        // Other tests of this process open and close theirs meanwhile.
        assert!(after.open_descriptors >= Some(files.len() as u64));
        assert!(after.most_descriptors >= after.open_descriptors);
    }
}
