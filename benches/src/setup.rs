//! Setup that all measurements share: sizes, numbers of runs, and hosts over one cache.

use std::path::{Path, PathBuf};

use agentiso_testkit::{HostOptions, TestHost, test_cache};
use anyhow::{Context, Result};

use crate::vm_line::{Rung, VmLine};

/// The number of uncounted calls that warm up translated code and caches.
pub(crate) const WARM_UP: usize = 20;

/// The default size of a workspace.
pub(crate) const VCPUS: u32 = 2;
pub(crate) const MEMORY_MB: u32 = 512;
pub(crate) const DISK_GB: u32 = 10;

/// The number of idle workspaces in the promise, and the limit of one session.
pub(crate) const IDLE: usize = 20;
pub(crate) const PER_SESSION: usize = 10;

/// The number of runs of each measurement.
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

    /// Few runs, to test the benchmark; its figures are not meaningful.
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

    /// A host with VMs of the measured size. Its warm pool is off, because it would affect all other figures.
    pub(crate) fn host(&self, config: &str) -> TestHost {
        self.host_with(format!("{config}[pool]\nenabled = false\n"))
    }

    /// A host with a warm pool, as by default.
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

    /// Makes the kernel, image and templates if they are missing.
    pub(crate) fn prepare(&self) {
        self.host("").cli_ok(&["init", "--yes"]);
    }

    /// The disk of the image.
    pub(crate) fn image_disk(&self) -> PathBuf {
        self.cache.join("images").join(&self.image).join("disk.qcow2")
    }

    /// The QEMU command line of a cold boot: a restored VM has no kernel in it.
    pub(crate) fn vm_line(&self) -> Result<VmLine> {
        let host = self.host("[vm]\ntemplates = false\n");
        let client = host.client();
        let workspace = client.workspace();
        let line = only_vm(&host)?;
        workspace.destroy();
        Ok(line)
    }
}

/// The command line of a host's only VM.
pub(crate) fn only_vm(host: &TestHost) -> Result<VmLine> {
    let vms = host.vms();
    let [pid] = vms[..] else { anyhow::bail!("{} VMs run instead of one", vms.len()) };
    VmLine::of(pid)
}

/// Checks that a VM started on the rung that the figure's name says. The daemon's log may show why it did not.
pub(crate) fn expect_rung(host: &TestHost, wanted: Rung) -> Result<()> {
    expect(host, &only_vm(host)?, wanted)
}

/// Like [`expect_rung`], for one VM among several.
pub(crate) fn expect_rung_of(host: &TestHost, workspace_id: &str, wanted: Rung) -> Result<()> {
    let lines = host.vms().into_iter().map(VmLine::of);
    let line = lines.flatten().find(|line| line.is_of(workspace_id));
    expect(host, &line.with_context(|| format!("no VM of {workspace_id} runs"))?, wanted)
}

fn expect(host: &TestHost, line: &VmLine, wanted: Rung) -> Result<()> {
    let rung = line.rung()?;
    if rung == wanted {
        return Ok(());
    }
    let log = std::fs::read_to_string(host.data().join("daemon.log")).unwrap_or_default();
    for line in log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")) {
        crate::say(line);
    }
    anyhow::bail!("the VM began by {rung:?} instead of {wanted:?}")
}

/// The socket of a workspace's agent.
pub(crate) fn agent_socket(host: &TestHost, workspace_id: &str) -> PathBuf {
    let short = workspace_id.get(..8).unwrap_or(workspace_id);
    Path::new(&host.data()).join("run").join(short).join("agent.sock")
}
