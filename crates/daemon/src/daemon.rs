//! The daemon as a value: opened on a configuration, spoken to through sessions, shut down once.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::config::Config;
use futures::future::join_all;
use thiserror::Error;

use crate::ledger::LedgerError;
use crate::lock::{InstanceLock, LockError};
use crate::machines::{Machines, QemuMachines};
use crate::mail::{MailStore, MailStoreError};
use crate::mcp_bridge::McpBridge;
use crate::network::{Network, NetworkError};
use crate::opening::{FoundMachines, Opening};
use crate::pool;
use crate::quarantined;
use crate::registry::SessionKind;
use crate::run_dir::{self, RunDirError, RunDirLock};
use crate::runner::{self, Request, STOP_GRACE};
use crate::session::{Session, recover_teams};
use crate::shared::{OnDisk, Shared};
use crate::sweep;
use crate::templates;

/// The graceful stop of all machines at once, and what insisting takes beyond its grace.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(35);
const _: () = assert!(SHUTDOWN_DEADLINE.as_secs() > STOP_GRACE.as_secs());

/// What is left to do for tasks once they are told to end: nothing that waits.
const TASKS_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the mail of teams cannot be stored: {0}")]
    Mail(#[from] MailStoreError),
    #[error("the network cannot be set up: {0}")]
    Network(#[source] NetworkError),
    #[error("{path} cannot be made: {source}")]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub(crate) shared: Arc<Shared>,
}

impl Daemon {
    /// Takes the lock, reads the ledger and starts to put both in agreement with the world. Sessions can be
    /// opened at once; calls that need what is still being found wait for exactly that.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let machines = Arc::new(QemuMachines::new(config.clone()));
        Self::open_with(config, machines).await
    }

    /// The same over other machines than QEMU's.
    pub async fn open_with(config: Config, machines: Arc<dyn Machines>) -> Result<Self, OpenError> {
        make_directories(&config)?;
        warn_of_missing_vault(&config);
        let state_file = run_dir::identity(&config.paths.state_file);
        let lock = InstanceLock::acquire_for(&config.paths.lock_file(), "daemon", Some(&state_file))?;
        let run_lock = RunDirLock::acquire(&config.paths)?;
        let opening = Opening::look(&config, &*machines)?;
        let found = opening.found();
        let Opening { mut registry, written, leftovers, .. } = opening;
        let mail = MailStore::open(config.paths.mail.clone(), &mut registry.teams)?;
        let mcp_bridge = McpBridge::of(&config);
        let network = Network::open(&config, mcp_bridge.clone()).map_err(OpenError::Network)?;
        let locks = (lock, run_lock);
        let on_disk = OnDisk { registry, written, mail };
        let shared = Arc::new(Shared::new(config, machines, on_disk, network, mcp_bridge, locks));
        recover(&shared, &found);
        recover_teams(&shared);
        shared.save().await?;
        shared.tasks.spawn(sweep::run(Arc::clone(&shared), leftovers));
        quarantined::watch(&shared, &found);
        let made = Arc::clone(&shared);
        shared.tasks.spawn(async move {
            // The pool's machines come from the templates.
            templates::run(Arc::clone(&made)).await;
            pool::run(made).await;
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

    /// Refuses everything from now on, so that whoever runs the daemon shuts it down.
    pub fn begin_shutdown(&self) {
        self.shared.closing.cancel();
    }

    /// Stops all machines at once and in order, destroys what was there for a call that ends with it, then ends every
    /// task. Bounded.
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
            // A refusal says that it does not run or is gone, which is what is wanted.
            if let Err(refusal) = handle.ask(&name, |reply| Request::End { reply }).await {
                tracing::debug!(workspace = %name, %refusal, "not stopped");
            }
        });
        if tokio::time::timeout(SHUTDOWN_DEADLINE, join_all(ends)).await.is_err() {
            tracing::error!("not all machines ended in time; they are found again at the next start");
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
        shared.save_or_warn("the daemon ends").await;
    }
}

/// Saves again what could not be saved, once there may be room.
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

/// Notes are no reason to keep machines from running; whoever asks for them is told as well.
fn warn_of_missing_vault(config: &Config) {
    let vault = &config.vault;
    if vault.enabled && !vault.path.is_dir() {
        tracing::warn!(path = %vault.path.display(), "vault.path is not a directory; there are no notes until it is");
    }
}

fn make_directories(config: &Config) -> Result<(), OpenError> {
    let paths = &config.paths;
    for path in [&paths.data, &paths.workspaces, &paths.transfer, &paths.run] {
        let failed = |source| OpenError::Directory { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    }
    // Sockets are as private as their directory.
    close_to_others(&paths.run)
}

fn close_to_others(path: &Path) -> Result<(), OpenError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(|source| OpenError::Directory { path: path.into(), source })
}

/// Starts a runner for each entry.
fn recover(shared: &Arc<Shared>, found: &FoundMachines) {
    let workspaces: Vec<_> = shared.state().registry.iter().cloned().collect();
    for workspace in workspaces {
        let running = found.machine(&workspace.id);
        runner::take_up(shared, &workspace, running, found.books(&workspace.id));
    }
}
