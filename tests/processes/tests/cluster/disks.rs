//! Disks on which a term cannot be written.

use fairlock_processes::cluster::{Cluster, field};
use fairlock_processes::history::{Allowance, check, moment};
use fairlock_processes::load::Load;
use fairlock_processes::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system of its own, which only root can make.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path) -> Option<Disk> {
        fs::create_dir_all(path).expect("a folder can be made");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "fairlock-test"])
            .arg(path)
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            skip("full and read-only disks: mounting needs root");
            return None;
        }
        Some(Disk(path.to_owned()))
    }

    /// Leaves no room on it.
    fn fill(&self) {
        let file = self.0.join("filler");
        while fs::read(&file).is_ok_and(|bytes| bytes.len() < 1 << 20) || !file.exists() {
            let mut bytes = fs::read(&file).unwrap_or_default();
            bytes.extend_from_slice(&[7; 4096]);
            if fs::write(&file, &bytes).is_err() {
                break;
            }
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).expect("it was filled");
    }

    /// Lays a file system over it that nobody can write to.
    fn cover(&self) {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "ro", "fairlock-test"])
            .arg(&self.0)
            .status();
        assert!(status.expect("root").success());
    }

    fn uncover(&self) {
        let status = Command::new("umount").arg(&self.0).status();
        assert!(status.expect("root").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a node may still have a file open on it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Breaks the disk of the second of three nodes in a way, kills the first, and repairs it.
fn another_takes_over(spoil: impl Fn(&Disk), repair: impl Fn(&Disk)) {
    let mut cluster = Cluster::planned(3, &["--preempt-delay", "0.5", "--keep-state=false"]);
    let Some(disk) = Disk::mount(&cluster.data_dir(1)) else {
        return;
    };
    for index in 0..3 {
        cluster.bring_up(index);
    }
    cluster.settle(0);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4);
    load.record().until_more(100);
    spoil(&disk);
    let crash = Allowance::crash(moment());
    cluster.kill(0);
    cluster.until(2, |status| field(status, "role") == "active");
    cluster.until_logged(1, "cannot write term");
    load.record().until_more(200);
    assert_eq!(field(&cluster.status(1), "role"), "standby");
    // Once it can write again it is what its priority makes it.
    repair(&disk);
    cluster.settle(1);
    load.record().until_more(100);
    check(&load.finish(), &[crash]).expect_clean(300);
}

#[test]
fn a_node_whose_disk_is_full_says_so_and_another_takes_over() {
    another_takes_over(Disk::fill, Disk::empty);
}

#[test]
fn a_node_whose_disk_is_read_only_says_so_and_another_takes_over() {
    another_takes_over(Disk::cover, Disk::uncover);
}
