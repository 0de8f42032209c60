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

use crate::ledger::{self, LedgerError, Loaded};
use crate::lock::{InstanceLock, LockError};
use crate::machines::{Machines, QemuMachines};
use crate::mcp_bridge::McpBridge;
use crate::network::{Network, NetworkError};
use crate::pool;
use crate::registry::{self, Limits, Registry, SessionKind, Status};
use crate::runner::{self, Recovery, Request, STOP_GRACE};
use crate::session::{Session, recover_teams};
use crate::shared::Shared;
use crate::sweep::{self, Leftovers};
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
    Ledger(#[from] LedgerError),
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
        let lock = InstanceLock::acquire(&config.paths.lock_file(), "daemon")?;
        let registry = load_registry(&config)?;
        let leftovers = Leftovers::find(&config.paths, &registry);
        let mcp_bridge = McpBridge::of(&config);
        let network = Network::open(&config, mcp_bridge.clone()).map_err(OpenError::Network)?;
        let shared = Arc::new(Shared::new(config, machines, registry, network, mcp_bridge, lock));
        recover(&shared);
        recover_teams(&shared);
        shared.save().await?;
        shared.tasks.spawn(sweep::run(Arc::clone(&shared), leftovers));
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

fn load_registry(config: &Config) -> Result<Registry, OpenError> {
    let limits = Limits {
        resources: config.resource_limits(),
        max_workspaces: config.resources.max_workspaces,
        max_total_vms: config.resources.max_total_vms,
        subnet: config.subnet(),
    };
    let path = &config.paths.state_file;
    let now = jiff::Timestamp::now();
    let (kept, problem) = match ledger::load(path, now)? {
        Loaded::Fresh => return Ok(Registry::new(limits)),
        Loaded::Ledger(document) => match registry::from_ledger(&document, limits) {
            Ok(registry) => return Ok(registry),
            Err(contradiction) => (ledger::keep_aside(path, now)?, contradiction.to_string()),
        },
        Loaded::KeptAside { kept, problem } => (kept, problem),
    };
    tracing::error!(
        kept = %kept.display(), problem,
        "THE LEDGER CANNOT BE USED. It was kept aside and the daemon starts without workspaces"
    );
    Ok(Registry::new(limits))
}

/// Decides what becomes of each entry, makes it visible at once where it is certain, and lets the runners do
/// the rest.
fn recover(shared: &Arc<Shared>) {
    let workspaces: Vec<_> = shared.state().registry.iter().cloned().collect();
    for workspace in workspaces {
        let recovery =
            runner::plan(&workspace.status, workspace.lifetime, |record| shared.machines.is_alive(record));
        match &recovery {
            Recovery::Settle(status) => shared.set_status(&workspace.id, status.clone()),
            Recovery::Remove => {
                let machine = workspace.status.machine().cloned();
                shared.set_status(&workspace.id, Status::Destroying { machine });
            }
            Recovery::Attach(_) | Recovery::Halt { .. } | Recovery::Interrupted { .. } => {}
        }
        runner::spawn_recovered(shared, &workspace, recovery);
    }
}
