//! Memory of the host that idle workspaces and the daemon use.
//!
//! PSS divides a page that several processes map equally among them, so the sum over all is the memory in use: VMs of
//! one template share pages that none of them has changed.

use agentiso_testkit::{Client, TestHost};
use anyhow::{Context, Result};

use crate::figures::{Figures, Key, Measured};
use crate::process_memory::{bytes, pss, settle};
use crate::setup::{IDLE, PER_SESSION, Setup};

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
    settle();
    let vms = host.vms();
    anyhow::ensure!(vms.len() == IDLE, "{} VMs run instead of {IDLE}", vms.len());
    let vms = pss(&vms)?;
    let (daemon_pss, daemon_rss) = daemon(&host)?;
    figures.set(Key::IdleMemory, Measured::Bytes(vms + daemon_pss));
    figures.set(Key::IdleVms, Measured::Bytes(vms / IDLE as u64));
    figures.set(Key::IdleDaemon, Measured::Bytes(daemon_pss));
    figures.set(Key::IdleDaemonResident, Measured::Bytes(daemon_rss));
    Ok(figures)
}

/// PSS and RSS of the daemon.
fn daemon(host: &TestHost) -> Result<(u64, u64)> {
    let pid = host.daemon().context("a daemon runs")?.pid;
    Ok((bytes(pid, "Pss")?, bytes(pid, "Rss")?))
}
