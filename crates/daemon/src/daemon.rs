//! The [`Daemon`] value: it is opened on a configuration, used through sessions and shut down once.
//!
//! Opening takes the locks, reads the ledger, starts a runner for each workspace and starts the background tasks:
//! the sweep, the quarantine watch, the templates, the warm pool and the retry of failed saves. A shutdown stops
//! all VMs, ends the tasks, closes the network and saves once more; each of these steps has a deadline.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::config::Config;
use futures::future::join_all;
use thiserror::Error;

use crate::handle::Request;
use crate::ledger::LedgerError;
use crate::lock::{InstanceLock, LockError};
use crate::mail::{MailStore, MailStoreError};
use crate::mcp_bridge::McpBridge;
use crate::network::{Network, NetworkError};
use crate::qemu_vms::QemuVms;
use crate::quarantined;
use crate::refill;
use crate::registry::SessionKind;
use crate::run_dir::{self, RunDirError, RunDirLock};
use crate::runner::{self, STOP_GRACE};
use crate::session::{Session, recover_teams};
use crate::shared::{OnDisk, Shared};
use crate::startup::{FoundVms, Startup};
use crate::sweep;
use crate::templates;
use crate::vms::Vms;

/// Longer than the grace time of a stop: all VMs are stopped at the same time, and those that do not stop in time have
/// to be killed.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(35);
const _: () = assert!(SHUTDOWN_DEADLINE.as_secs() > STOP_GRACE.as_secs());

/// Tasks that are told to end have nothing left to wait for.
const TASKS_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot store the messages of teams: {0}")]
    Mail(#[from] MailStoreError),
    #[error("cannot set up the network: {0}")]
    Network(#[source] NetworkError),
    #[error("cannot create {path}: {source}")]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A handle on the daemon, cheap to clone.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub(crate) shared: Arc<Shared>,
}

impl Daemon {
    /// Takes the locks, reads the ledger and starts to bring both in line with what the host has. Sessions can be
    /// opened at once; a call that needs something still being looked for waits for exactly that.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let vms = Arc::new(QemuVms::new(config.clone()));
        Self::open_with(config, vms).await
    }

    /// Opens a daemon on another implementation of [`Vms`] than QEMU.
    pub async fn open_with(config: Config, vms: Arc<dyn Vms>) -> Result<Self, OpenError> {
        make_directories(&config)?;
        warn_of_missing_vault(&config);
        let state_file = run_dir::identity(&config.paths.state_file);
        let lock = InstanceLock::acquire_for(&config.paths.lock_file(), "daemon", Some(&state_file))?;
        let run_lock = RunDirLock::acquire(&config.paths)?;
        let startup = Startup::read(&config, &*vms)?;
        let found = startup.found();
        let Startup { mut registry, written, leftovers, .. } = startup;
        let mail = MailStore::open(config.paths.mail.clone(), &mut registry.teams)?;
        let mcp_bridge = McpBridge::of(&config);
        let services = mcp_bridge.as_ref().map(McpBridge::services).unwrap_or_default();
        let network = Arc::new(Network::open(&config, services).map_err(OpenError::Network)?);
        let locks = (lock, run_lock);
        let on_disk = OnDisk { registry, written, mail };
        let shared = Arc::new(Shared::new(config, vms, on_disk, network, mcp_bridge, locks));
        recover(&shared, &found);
        recover_teams(&shared);
        shared.save().await?;
        shared.tasks.spawn(sweep::run(Arc::clone(&shared), leftovers));
        quarantined::watch(&shared, &found);
        let made = Arc::clone(&shared);
        shared.tasks.spawn(async move {
            // The VMs of the pool are restored from the templates.
            templates::run(Arc::clone(&made)).await;
            refill::run(made).await;
        });
        shared.tasks.spawn(catch_up(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    pub fn open_session(&self, kind: SessionKind) -> Session {
        Session::open(Arc::clone(&self.shared), kind)
    }

    /// Resolves when a shutdown has begun.
    pub async fn closing(&self) {
        self.shared.closing.cancelled().await;
    }

    /// Refuses every further call, so that the program that runs the daemon shuts it down.
    pub(crate) fn begin_shutdown(&self) {
        self.shared.closing.cancel();
    }

    /// Stops all VMs concurrently and gracefully, destroys workspaces that exist for one call only, then ends every
    /// task. Each step has a deadline.
    pub async fn shutdown(self) {
        let shared = &self.shared;
        shared.closing.cancel();
        let all: Vec<_> = {
            let state = shared.state();
            let runners = state.runners.iter();
            runners
                .filter_map(|(id, handle)| Some((state.registry.get(id)?.name.clone(), handle.clone())))
                .collect()
        };
        let ends = all.into_iter().map(|(name, handle)| async move {
            // A refusal means that the VM does not run or is gone, which is the goal.
            if let Err(refusal) = handle.ask(&name, Request::End).await {
                tracing::debug!(workspace = %name, %refusal, "not stopped");
            }
        });
        if tokio::time::timeout(SHUTDOWN_DEADLINE, join_all(ends)).await.is_err() {
            tracing::error!("some VMs did not stop in time; the next daemon takes them over");
        }
        shared.ended.cancel();
        shared.tasks.close();
        if tokio::time::timeout(TASKS_DEADLINE, shared.tasks.wait()).await.is_err() {
            tracing::error!(left = shared.tasks.len(), "tasks did not end in time");
        }
        if tokio::time::timeout(TASKS_DEADLINE, shared.network.close()).await.is_err() {
            tracing::error!("not all connections ended in time");
        }
        shared.change(|_| ());
        shared.save_or_warn("the daemon is stopping").await;
    }
}

/// Saves the ledger again after a failed save, once there may be room.
async fn catch_up(shared: Arc<Shared>) {
    let seconds = shared.config.server.state_persist_interval_secs.max(1);
    let mut tick = tokio::time::interval(Duration::from_secs(seconds));
    loop {
        tokio::select! {
            biased;
            () = shared.ended.cancelled() => return,
            _ = tick.tick() => {}
        }
        if shared.ledger_is_behind() {
            shared.change(|_| ());
            shared.save_or_warn("an earlier change is still unsaved").await;
        }
    }
}

/// Warns only: missing notes must not keep VMs from running, and a client that asks for notes gets an error anyway.
fn warn_of_missing_vault(config: &Config) {
    let vault = &config.vault;
    if vault.enabled && !vault.path.is_dir() {
        tracing::warn!(path = %vault.path.display(), "vault.path is not a directory; the vault is unavailable until it is one");
    }
}

fn make_directories(config: &Config) -> Result<(), OpenError> {
    let paths = &config.paths;
    for path in [&paths.data, &paths.workspaces, &paths.transfer, &paths.run] {
        let failed = |source| OpenError::Directory { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    }
    // Sockets are only as private as their directory.
    close_to_others(&paths.run)
}

fn close_to_others(path: &Path) -> Result<(), OpenError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(|source| OpenError::Directory { path: path.into(), source })
}

/// Starts a runner for each workspace of the registry.
fn recover(shared: &Arc<Shared>, found: &FoundVms) {
    let workspaces: Vec<_> = shared.state().registry.iter().cloned().collect();
    for workspace in workspaces {
        let running = found.vm(&workspace.id);
        runner::take_up(shared, &workspace, running, found.listing(&workspace.id));
    }
}
