//! The site of a run: one agentiso host on a small disk, and the state that its clients and the storm share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use agentiso_testkit::{Client, HostOptions, TestHost};
use anyhow::{Context as _, Result, bail};

use crate::journal::Journal;
use crate::weather::Weather;

/// The size of the disk with the daemon's data: a sparse file with ext4, as hosts have it. The clients cannot fill it;
/// only the storm does.
const DISK_BYTES: u64 = 32 << 30;

/// The variable that names the file from which the daemon reads where to fail.
const FAULT_FILE: &str = "AGENTISO_FAULT_FILE";

/// A small network that runs out of addresses if some are not released.
const SUBNET_PREFIX: u8 = 25;

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) host: TestHost,
    pub(crate) disk: PathBuf,
    pub(crate) fault_file: PathBuf,
    pub(crate) journal: Journal,
    pub(crate) weather: Weather,
    /// Held for reading while a daemon is started, and for writing by the storm while none may be started.
    pub(crate) gate: RwLock<()>,
    /// The clients' connections, so that the storm can end them.
    pub(crate) connections: Vec<Mutex<Option<Arc<Client>>>>,
    /// The call that each client waits for.
    pub(crate) calls: Vec<Mutex<Option<Call>>>,
    /// The workspaces that each client certainly owns: names, and the first digits of their ids.
    pub(crate) owned: Vec<Mutex<BTreeMap<String, String>>>,
    /// Whether each client's session has adopted all workspaces of the client.
    pub(crate) has_adopted: Vec<AtomicBool>,
    /// Whether a daemon had to rebuild the ledger from the workspaces' directories.
    pub(crate) ledger_was_lost: AtomicBool,
    pub(crate) deadline: Instant,
    over: AtomicBool,
}

/// A tool call that was not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tool: String,
    /// The first digits of the id of its workspace.
    pub(crate) vm: Option<String>,
    pub(crate) makes_vms: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    pub(crate) clients: usize,
    pub(crate) workspaces: usize,
    pub(crate) memory_mb: u32,
    pub(crate) operations_between_faults: u64,
    /// Whether the ledger is damaged from time to time.
    pub(crate) damages_ledger: bool,
    /// The configuration's `network.backend`.
    pub(crate) backend: String,
    pub(crate) evidence: PathBuf,
}

impl Site {
    pub(crate) fn open(settings: &Settings, journal: Journal) -> Result<Self> {
        let disk = PathBuf::from(format!("/tmp/aiso-soak-{}", settings.seed));
        mount(&disk)?;
        let fault_file = journal.dir.join("fault");
        let limit = u32::try_from(settings.workspaces * 2 + 20)?;
        let host = TestHost::start_with(HostOptions {
            memory_mb: settings.memory_mb,
            max_workspaces: limit,
            parent: disk.clone(),
            environment: vec![
                (FAULT_FILE.to_owned(), fault_file.display().to_string()),
                ("RUST_LOG".to_owned(), "info".to_owned()),
            ],
            config: format!(
                "[network]\nbackend = \"{}\"\nsubnet_prefix = {SUBNET_PREFIX}\n",
                settings.backend
            ),
            ..HostOptions::default()
        });
        Ok(Self {
            host,
            disk,
            fault_file,
            journal,
            weather: Weather::default(),
            gate: RwLock::new(()),
            connections: (0..settings.clients).map(|_| Mutex::new(None)).collect(),
            calls: (0..settings.clients).map(|_| Mutex::new(None)).collect(),
            owned: (0..settings.clients).map(|_| Mutex::new(BTreeMap::new())).collect(),
            has_adopted: (0..settings.clients).map(|_| AtomicBool::new(false)).collect(),
            ledger_was_lost: AtomicBool::new(false),
            deadline: Instant::now() + Duration::from_secs_f64(settings.minutes * 60.0),
            over: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || Instant::now() >= self.deadline
    }

    /// Ends the run early.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Records the call that a client waits for.
    pub(crate) fn awaits(&self, client: usize, call: Option<Call>) {
        *self.calls[client].lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    pub(crate) fn own(&self, client: usize, name: &str, short: &str) {
        let mut owned = self.owned[client].lock().unwrap_or_else(PoisonError::into_inner);
        owned.insert(name.to_owned(), short.to_owned());
    }

    /// Whether a client owns the workspace of this VM.
    pub(crate) fn is_known(&self, short: &str) -> bool {
        self.owned.iter().any(|owned| {
            owned.lock().unwrap_or_else(PoisonError::into_inner).values().any(|known| known == short)
        })
    }

    /// Whether a client is connected and its session has adopted all its workspaces.
    pub(crate) fn holds_its_own(&self, client: usize) -> bool {
        let connection = self.connections[client].lock().unwrap_or_else(PoisonError::into_inner);
        self.has_adopted[client].load(Ordering::Acquire)
            && connection.as_ref().is_some_and(|connection| !connection.is_closed())
    }

    pub(crate) fn disown(&self, client: usize, name: &str) {
        self.owned[client].lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Unmounts the disk. Leftovers are in the report already, and processes end with the namespaces.
    pub(crate) fn close(self) -> Result<()> {
        let disk = self.disk.clone();
        // The destructor of the host would panic on leftovers.
        std::mem::forget(self);
        Command::new("umount").arg("-l").arg(&disk).status().context("umount")?;
        std::fs::remove_dir(&disk).with_context(|| format!("removing {}", disk.display()))
    }

    /// Copies the logs and the ledger out of the host's directory, which is removed with the run.
    pub(crate) fn keep_evidence(&self) {
        let data = self.host.data();
        for name in ["daemon.log", "daemon.log.1", "state.json"] {
            let _absent = std::fs::copy(data.join(name), self.journal.dir.join(name));
        }
        for entry in std::fs::read_dir(data.join("workspaces")).into_iter().flatten().flatten() {
            self.keep_workspace(&entry.path());
        }
    }

    fn keep_workspace(&self, dir: &Path) {
        let target = self.journal.dir.join("left").join(dir.file_name().unwrap_or_default());
        if std::fs::create_dir_all(&target).is_ok() {
            for name in ["volume.json", "console.log", "stderr.log"] {
                let _absent = std::fs::copy(dir.join(name), target.join(name));
            }
        }
    }
}

/// Mounts a new file system. Its image file is unlinked and disappears with the mount, however the run ends.
fn mount(at: &Path) -> Result<()> {
    std::fs::create_dir_all(at).with_context(|| format!("creating {}", at.display()))?;
    let image = at.with_extension("img");
    let file = std::fs::File::create(&image).with_context(|| format!("creating {}", image.display()))?;
    file.set_len(DISK_BYTES)?;
    // Without blocks reserved for root, and without deferred initialisation.
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-N", "200000"])
        .arg(&image);
    let mut mount = Command::new("mount");
    mount.args(["-o", "loop,discard"]).arg(&image).arg(at);
    let mounted = make.status()?.success() && mount.status()?.success();
    std::fs::remove_file(&image)?;
    if !mounted {
        bail!("no file system could be made and mounted at {}", at.display());
    }
    Ok(())
}

/// A short wait, for conditions that give no event to other processes.
#[expect(clippy::disallowed_methods, reason = "the soak polls for conditions that give no event")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
