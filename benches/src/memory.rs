//! The host's memory that idle workspaces and the daemon take.
//!
//! PSS counts a page that several processes map in equal parts to each, so the sum over all is what is really used:
//! machines of one template share what none of them has changed.

use std::time::Duration;

use agentiso_testkit::{Client, TestHost};
use anyhow::{Context, Result};

use crate::figures::{Figures, Key, Measured};
use crate::setup::{IDLE, PER_SESSION, Setup};

/// Guests come to rest after their last command; memory still grows meanwhile.
const SETTLE: Duration = Duration::from_secs(20);

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let mut figures = Figures::default();
    let sessions: Vec<Client> = (0..IDLE.div_ceil(PER_SESSION)).map(|_| host.client()).collect();
    figures.set(Key::FreshDaemon, Measured::Bytes(daemon(&host)?.0));
    for client in &sessions {
        for _ in 0..PER_SESSION {
            client.workspace().sh("true");
        }
    }
    wait(SETTLE);
    let machines = host.machines();
    anyhow::ensure!(machines.len() == IDLE, "{} machines run instead of {IDLE}", machines.len());
    let machines: u64 = machines.into_iter().map(|pid| kib(pid, "Pss")).sum::<Result<u64>>()?;
    let (daemon_pss, daemon_rss) = daemon(&host)?;
    figures.set(Key::IdleMemory, Measured::Bytes(machines + daemon_pss));
    figures.set(Key::IdleMachines, Measured::Bytes(machines / IDLE as u64));
    figures.set(Key::IdleDaemon, Measured::Bytes(daemon_pss));
    figures.set(Key::IdleDaemonResident, Measured::Bytes(daemon_rss));
    Ok(figures)
}

/// PSS and RSS of the daemon.
fn daemon(host: &TestHost) -> Result<(u64, u64)> {
    let pid = host.daemon().context("a daemon runs")?.pid;
    Ok((kib(pid, "Pss")?, kib(pid, "Rss")?))
}

/// A field of a process's memory summary, in bytes.
fn kib(pid: i32, field: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    parse(&text, field).with_context(|| format!("no {field} in {path}"))
}

fn parse(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

#[expect(
    clippy::disallowed_methods,
    reason = "coming to rest gives no event; the time is part of the measurement"
)]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart_by_their_whole_name() {
        let text = "00-ff ---p 00000000 00:00 0 [rollup]\nRss:  100 kB\nPss:   50 kB\nPss_Dirty:  7 kB\n";
        assert_eq!(parse(text, "Pss"), Some(50 * 1024));
        assert_eq!(parse(text, "Pss_Dirty"), Some(7 * 1024));
        assert_eq!(parse(text, "Swap"), None);
    }

    #[test]
    fn our_own_memory_can_be_read() {
        let pid = std::process::id() as i32;
        assert!(kib(pid, "Rss").unwrap() >= kib(pid, "Pss").unwrap());
    }
}
