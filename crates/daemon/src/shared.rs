//! What all tasks of one daemon share: the configuration, the registry behind its lock, and the ways to save it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentiso_core::config::Config;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceName;
use agentiso_core::resources::Resources;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::claims::Claims;
use crate::first_turn::FirstTurns;
use crate::ledger::{Description, Holds, LedgerError, Store, Written, write_workspace};
use crate::lock::InstanceLock;
use crate::machines::{ImageRef, MachineSpec, Machines};
use crate::mail::MailStore;
use crate::mcp_bridge::McpBridge;
use crate::metrics::Metrics;
use crate::network::Network;
use crate::pool::Pool;
use crate::registry::{self, Place, Registry, Status, Workspace};
use crate::run_dir::RunDirLock;
use crate::runner::Handle;
use crate::space::SpacePromises;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) machines: Arc<dyn Machines>,
    state: Mutex<State>,
    /// Marked whenever the registry was changed, for those who watch workspaces.
    pub(crate) changed: watch::Sender<()>,
    store: Store,
    /// Something has changed that the ledger may be told later.
    save_later: AtomicBool,
    /// Cancelled when the daemon begins to shut down: no operation begins any more, creates are rolled back.
    pub(crate) closing: CancellationToken,
    /// Cancelled when all machines are down: every task ends.
    pub(crate) ended: CancellationToken,
    /// Turns of forks to come up, shared by all sessions: a host that brings up many at once is slow for each.
    pub(crate) forks: Semaphore,
    pub(crate) first_turns: FirstTurns,
    pub(crate) space: SpacePromises,
    pub(crate) pool: Pool,
    pub(crate) metrics: Metrics,
    pub(crate) network: Network,
    pub(crate) mail: MailStore,
    /// MCP for what runs inside workspaces, if it is enabled.
    pub(crate) mcp_bridge: Option<Arc<McpBridge>>,
    /// Workspaces that are merged into.
    pub(crate) merging: Claims<WorkspaceId>,
    /// Whose turn it is to write the notes about members of teams.
    pub(crate) cards: tokio::sync::Mutex<()>,
    /// Names under which a workspace is being prepared.
    pub(crate) preparing: Claims<WorkspaceName>,
    /// Every task of the daemon, so that a shutdown can wait for all of them.
    pub(crate) tasks: TaskTracker,
    _locks: (InstanceLock, RunDirLock),
}

/// How many forks come up at once: a processor each, because that is what one needs until it answers.
fn turns(allowed: u32) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.min(allowed as usize)
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) registry: Registry,
    pub(crate) runners: HashMap<WorkspaceId, Handle>,
    /// Counts the changes, so that savers know whether theirs is on disk.
    generation: u64,
}

/// What was found on disk at start.
#[derive(Debug)]
pub(crate) struct OnDisk {
    pub(crate) registry: Registry,
    pub(crate) written: Written,
    pub(crate) mail: MailStore,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        machines: Arc<dyn Machines>,
        on_disk: OnDisk,
        network: Network,
        mcp_bridge: Option<Arc<McpBridge>>,
        locks: (InstanceLock, RunDirLock),
    ) -> Self {
        let OnDisk { registry, written, mail } = on_disk;
        Self {
            forks: Semaphore::new(turns(config.resources.max_concurrent_forks)),
            first_turns: FirstTurns::new(turns(u32::MAX)),
            space: SpacePromises::default(),
            pool: Pool::default(),
            metrics: Metrics::default(),
            network,
            mail,
            mcp_bridge,
            merging: Claims::default(),
            preparing: Claims::default(),
            cards: tokio::sync::Mutex::default(),
            store: Store::new(config.paths.clone(), written),
            save_later: AtomicBool::new(false),
            state: Mutex::new(State { registry, runners: HashMap::new(), generation: 1 }),
            changed: watch::Sender::new(()),
            config,
            machines,
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            _locks: locks,
        }
    }

    /// A panic while the lock was held cannot have left the registry torn: every change to it is one insert,
    /// remove or assignment.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the registry; [`Shared::save`] then puts it on disk.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut state = self.state();
        state.generation += 1;
        let done = change(&mut state.registry);
        // Only now: whoever wakes up finds the change.
        drop(state);
        self.changed.send_replace(());
        done
    }

    pub(crate) fn set_status(&self, id: &WorkspaceId, status: Status) {
        self.change(|registry| {
            registry.update(id, |workspace| workspace.status = status.bounded());
        });
    }

    pub(crate) fn workspace(&self, id: &WorkspaceId) -> Option<Workspace> {
        self.state().registry.get(id).cloned()
    }

    /// Has the network know which machines are near to each other. One lock for both, so that what was true last is what
    /// it knows.
    pub(crate) fn regroup(&self) {
        let registry = &self.state().registry;
        for workspace in registry.iter() {
            self.network.set_groups(&workspace.id, registry.teams.groups_of(&workspace.id));
        }
    }

    /// Removes the workspace and its runner's handle.
    pub(crate) fn forget(&self, id: &WorkspaceId) {
        let mut state = self.state();
        state.generation += 1;
        state.registry.remove(id);
        state.runners.remove(id);
        // Under the lock: whoever gets its address next finds the seat free.
        self.network.leave(id);
        if let Some(bridge) = &self.mcp_bridge {
            bridge.forget(id);
        }
        self.first_turns.forget(id);
        drop(state);
        self.changed.send_replace(());
    }

    /// Returns once everything changed so far is on disk.
    pub(crate) async fn save(&self) -> Result<(), LedgerError> {
        let generation = self.state().generation;
        let take = || {
            let state = self.state();
            (state.generation, registry::to_ledger(&state.registry, jiff::Timestamp::now()))
        };
        self.store.save(generation, take).await
    }

    /// For changes that have already happened in the world: a failed save is reported and made good later.
    pub(crate) async fn save_or_warn(&self, what: &str) {
        if let Err(error) = self.save().await {
            tracing::error!(%error, "{what}, but the ledger could not be saved; it will be tried again");
        }
    }

    /// For changes that can be found out again if they are lost: the ledger gets them with the next save, or soon.
    pub(crate) fn save_later(&self) {
        self.save_later.store(true, Ordering::Release);
    }

    /// Whether there is something to save that nobody is saving.
    pub(crate) fn ledger_is_behind(&self) -> bool {
        self.save_later.swap(false, Ordering::AcqRel) || self.store.is_behind()
    }

    pub(crate) fn spec(&self, workspace: &Workspace) -> MachineSpec {
        MachineSpec {
            id: workspace.id,
            hostname: workspace.name.hostname(),
            resources: workspace.resources,
            image: workspace.image.clone(),
            address: workspace.address,
            init_mode: self.config.vm.init_mode,
            data_dir: self.config.paths.workspace_data(&workspace.id),
            run_dir: self.config.paths.workspace_run(&workspace.id),
        }
    }

    /// Says in a directory that is about to be made that it is nobody's, so that it is removed after a crash.
    pub(crate) async fn describe_unowned(&self, spec: &MachineSpec, holds: Holds) -> Result<(), LedgerError> {
        let (directory, description) = (spec.data_dir.clone(), Description::new(spec.id, 0, holds));
        let written = tokio::task::spawn_blocking(move || {
            let made = agentiso_host::files::make_private_dir(&directory);
            made.map_err(|error| LedgerError::Io { path: directory.clone(), source: error.source })?;
            write_workspace(&directory, &description)
        });
        let failed =
            |error| LedgerError::Io { path: spec.data_dir.clone(), source: std::io::Error::other(error) };
        written.await.map_err(failed)?
    }

    /// A machine of the pool: like any other, in a place that no workspace has, and with nobody's name.
    pub(crate) fn standby_spec(&self, place: Place, image: ImageRef, resources: Resources) -> MachineSpec {
        let Place { id, address } = place;
        MachineSpec {
            id,
            hostname: "standby".to_owned(),
            resources,
            image,
            address,
            init_mode: self.config.vm.init_mode,
            data_dir: self.config.paths.workspace_data(&id),
            run_dir: self.config.paths.workspace_run(&id),
        }
    }
}
