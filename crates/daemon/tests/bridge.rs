//! Tests that the daemon removes the TAP device of a discarded VM from a bridge of the host. The bridge is in a
//! network namespace of the test.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use agentiso_daemon::{Daemon, SessionKind};
use rustix::ioctl::{Setter, ioctl};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use support::{FakeHost, FakeVms, config, eventually};

const ID: &str = "00000002-0000-4000-8000-000000000000";
const TAP: &str = "aiso00000002";

/// Runs a command in the network namespace of the calling thread.
fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn enter_namespace() -> io::Result<()> {
    // SAFETY: only the network namespace of this thread changes; no file descriptor depends on it.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    sh("ip link set lo up");
    Ok(())
}

/// Connects to a TAP device, as QEMU does.
fn connect(tap: &str) -> File {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun").unwrap();
    let mut request = [0_u8; 40];
    request[..tap.len()].copy_from_slice(tap.as_bytes());
    request[16..18].copy_from_slice(&0x1002_u16.to_ne_bytes());
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which is as long as this.
    unsafe { ioctl(device.as_fd(), Setter::<0x4004_54ca, _>::new(request)) }.unwrap();
    device
}

fn has_tap() -> bool {
    sh("ip -o link show").contains(TAP)
}

/// Runs `tell` with a daemon at a bridge that found a VM which its ledger does not list.
fn with_unknown_vm(tell: impl AsyncFnOnce(&Daemon, &FakeHost, i32) + Send) {
    let told = thread::scope(|scope| {
        let told = scope.spawn(|| {
            enter_namespace().map_err(|error| format!("no network namespace can be made: {error}"))?;
            sh(&format!("ip tuntap add {TAP} mode tap; ip link set {TAP} up"));
            let dir = tempfile::tempdir().unwrap();
            let host = FakeHost::new(dir.path());
            let pid = host.spawn_stray(ID);
            host.open_files.lock().unwrap().insert(pid, connect(TAP));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = config(dir.path(), "[network]\nbackend = \"bridge\"\n");
                let leftover = config.paths.run.join("00000003");
                fs::create_dir_all(&leftover).unwrap();
                let daemon = Daemon::open_with(config, Arc::new(FakeVms(Arc::clone(&host)))).await.unwrap();
                // The start sweeps the network first and removes this directory afterwards. Removals seen later are
                // not the sweep's.
                eventually("the end of the sweep", || !leftover.exists()).await;
                assert!(has_tap(), "a VM is connected to it");
                tell(&daemon, &host, pid).await;
                daemon.shutdown().await;
            });
            Ok::<_, String>(())
        });
        told.join()
    });
    match told {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => agentiso_testkit::record_skip(&reason),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[test]
fn discarded_vm_leaves_no_tap_device() {
    with_unknown_vm(async |daemon: &Daemon, host: &FakeHost, pid: i32| {
        daemon.open_session(SessionKind::Shell).discard(ID).await.unwrap();
        assert!(!host.lives(pid));
        assert!(!has_tap(), "{}", sh("ip -o link show"));
    });
}

#[test]
fn discarding_an_ended_vm_removes_its_tap() {
    with_unknown_vm(async |daemon: &Daemon, host: &FakeHost, pid: i32| {
        host.kill(pid, "it ended by itself");
        daemon.open_session(SessionKind::Shell).discard(ID).await.unwrap();
        assert!(!has_tap(), "{}", sh("ip -o link show"));
    });
}
