//! What all measurements share: sizes, counts, and servers of their own over one cache.

use std::path::{Path, PathBuf};

use agentiso_testkit::{HostOptions, TestHost, test_cache};
use anyhow::{Context, Result};

use crate::machine_line::{MachineLine, Rung};

/// Calls before those that count: translated code and caches are warm then.
pub(crate) const WARM_UP: usize = 20;

/// The size of a workspace when nothing is asked for.
pub(crate) const VCPUS: u32 = 2;
pub(crate) const MEMORY_MB: u32 = 512;
pub(crate) const DISK_GB: u32 = 10;

/// The number of idle workspaces in the promise, and how many one session may have.
pub(crate) const IDLE: usize = 20;
pub(crate) const PER_SESSION: usize = 10;

/// How often things are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    pub(crate) boots: usize,
    pub(crate) creates: usize,
    pub(crate) restarts: usize,
    pub(crate) round_trips: usize,
    pub(crate) container_starts: usize,
    pub(crate) pooled: usize,
    pub(crate) snapshots: usize,
    pub(crate) forks: usize,
    pub(crate) batches: usize,
    pub(crate) restores: usize,
    pub(crate) chain: usize,
    pub(crate) transfers: usize,
    pub(crate) connections: usize,
    pub(crate) jailed: usize,
}

impl Runs {
    pub(crate) const FULL: Self = Self {
        boots: 10,
        creates: 20,
        restarts: 10,
        round_trips: 200,
        container_starts: 50,
        pooled: 20,
        snapshots: 50,
        forks: 10,
        batches: 5,
        restores: 10,
        chain: 100,
        transfers: 5,
        connections: 100,
        jailed: 30,
    };

    /// To see that the benchmark works; its figures say little.
    pub(crate) const QUICK: Self = Self {
        boots: 2,
        creates: 3,
        restarts: 2,
        round_trips: 40,
        container_starts: 5,
        pooled: 3,
        snapshots: 5,
        forks: 3,
        batches: 1,
        restores: 2,
        chain: 20,
        transfers: 1,
        connections: 20,
        jailed: 2,
    };
}

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) dir: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) image: String,
    pub(crate) runs: Runs,
}

impl Setup {
    pub(crate) fn new(dir: PathBuf, image: String, runs: Runs) -> Result<Self> {
        let cache =
            test_cache().context("AGENTISO_TEST_CACHE is not set: run the benchmark with ./x bench")?;
        Ok(Self { dir, cache, image, runs })
    }

    /// A server whose machines are of the size that is measured. It keeps none ready: they would be in the way of
    /// every figure that is not about them.
    pub(crate) fn host(&self, config: &str) -> TestHost {
        self.host_with(format!("{config}[pool]\nenabled = false\n"))
    }

    /// A server that keeps machines ready, as it does unless it is told not to.
    pub(crate) fn pooled_host(&self) -> TestHost {
        self.host_with("[pool]\nenabled = true\n".to_owned())
    }

    fn host_with(&self, config: String) -> TestHost {
        TestHost::start_with(HostOptions {
            config,
            vcpus: VCPUS,
            memory_mb: MEMORY_MB,
            disk_gb: DISK_GB,
            max_workspaces: 2 * IDLE as u32,
            base_image: self.image.clone(),
            parent: self.dir.clone(),
            ..HostOptions::default()
        })
    }

    /// Makes kernel, image and templates, if they are not there yet.
    pub(crate) fn prepare(&self) {
        self.host("").cli_ok(&["init", "--yes"]);
    }

    /// The disk of the image that machines are made from.
    pub(crate) fn image_disk(&self) -> PathBuf {
        self.cache.join("images").join(&self.image).join("disk.qcow2")
    }

    /// The command line of some workspace's machine that is booted: a restored one needs no kernel.
    pub(crate) fn machine_line(&self) -> Result<MachineLine> {
        let host = self.host("[vm]\ntemplates = false\n");
        let client = host.client();
        let workspace = client.workspace();
        let line = only_machine(&host)?;
        workspace.destroy();
        Ok(line)
    }
}

/// The command line of a host's one machine.
pub(crate) fn only_machine(host: &TestHost) -> Result<MachineLine> {
    let machines = host.machines();
    let [pid] = machines[..] else { anyhow::bail!("{} machines run instead of one", machines.len()) };
    MachineLine::of(pid)
}

/// A figure is only worth its name if the machine began as the name says. Why it did not, the daemon's log may tell.
pub(crate) fn expect_rung(host: &TestHost, wanted: Rung) -> Result<()> {
    expect(host, &only_machine(host)?, wanted)
}

/// The same of one machine among several.
pub(crate) fn expect_rung_of(host: &TestHost, workspace_id: &str, wanted: Rung) -> Result<()> {
    let lines = host.machines().into_iter().map(MachineLine::of);
    let line = lines.flatten().find(|line| line.is_of(workspace_id));
    expect(host, &line.with_context(|| format!("no machine of {workspace_id} runs"))?, wanted)
}

fn expect(host: &TestHost, line: &MachineLine, wanted: Rung) -> Result<()> {
    let rung = line.rung()?;
    if rung == wanted {
        return Ok(());
    }
    let log = std::fs::read_to_string(host.data().join("daemon.log")).unwrap_or_default();
    for line in log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")) {
        crate::say(line);
    }
    anyhow::bail!("the machine began by {rung:?} instead of {wanted:?}")
}

/// The socket of a workspace's agent.
pub(crate) fn agent_socket(host: &TestHost, workspace_id: &str) -> PathBuf {
    let short = workspace_id.get(..8).unwrap_or(workspace_id);
    Path::new(&host.data()).join("run").join(short).join("agent.sock")
}
