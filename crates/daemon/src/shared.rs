//! State that all tasks of one daemon share: the configuration, the registry behind its lock, and the ways to save
//! it.

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
use crate::handle::Handle;
use crate::info::VmIdentity;
use crate::ledger::{Description, Holds, LedgerError, Store, Written, write_workspace};
use crate::lock::InstanceLock;
use crate::mail::MailStore;
use crate::mcp_bridge::McpBridge;
use crate::metrics::Metrics;
use crate::network::Network;
use crate::pool::Pool;
use crate::registry::{self, Registry, Status, Workspace};
use crate::run_dir::RunDirLock;
use crate::space::SpacePromises;
use crate::vm_spec::{Of, vm_spec};
use crate::vms::{ImageRef, VmSpec, Vms};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) vms: Arc<dyn Vms>,
    state: Mutex<State>,
    /// Notified after every change of the registry, for tasks that watch workspaces.
    pub(crate) changed: watch::Sender<()>,
    store: Store,
    /// Set when something changed that the ledger may get with a later save.
    save_later: AtomicBool,
    /// Cancelled when the daemon begins to shut down: no operation begins any more, and creates are rolled back.
    pub(crate) closing: CancellationToken,
    /// Cancelled when all VMs are down: every task ends.
    pub(crate) ended: CancellationToken,
    /// Permits for forks to boot, shared by all sessions: a host that boots many at once is slow for each.
    pub(crate) forks: Semaphore,
    pub(crate) first_turns: FirstTurns,
    pub(crate) space: SpacePromises,
    pub(crate) pool: Pool,
    pub(crate) metrics: Metrics,
    pub(crate) network: Arc<Network>,
    pub(crate) mail: MailStore,
    /// The MCP bridge for programs inside workspaces, if it is enabled.
    pub(crate) mcp_bridge: Option<Arc<McpBridge>>,
    /// Workspaces that a merge is changing.
    pub(crate) merging: Claims<WorkspaceId>,
    /// Held while the notes about members of teams are written.
    pub(crate) cards: tokio::sync::Mutex<()>,
    /// Names under which a workspace is being prepared.
    pub(crate) preparing: Claims<WorkspaceName>,
    /// Every task of the daemon, so that a shutdown can wait for all of them.
    pub(crate) tasks: TaskTracker,
    _locks: (InstanceLock, RunDirLock),
}

/// The number of forks that boot at once: one per processor, because a boot needs a whole processor until it
/// answers.
fn turns(allowed: u32) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.min(allowed as usize)
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) registry: Registry,
    pub(crate) runners: HashMap<WorkspaceId, Handle>,
    /// Counts the changes, so that a saver knows whether its change is on disk.
    generation: u64,
}

/// The state found on disk at start.
#[derive(Debug)]
pub(crate) struct OnDisk {
    pub(crate) registry: Registry,
    pub(crate) written: Written,
    pub(crate) mail: MailStore,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        vms: Arc<dyn Vms>,
        on_disk: OnDisk,
        network: Arc<Network>,
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
            vms,
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            _locks: locks,
        }
    }

    /// A poisoned lock is used all the same: every change is one insert, remove or assignment, so a panic cannot
    /// have left the registry half changed.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the registry; [`Shared::save`] then puts it on disk.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut state = self.state();
        state.generation += 1;
        let done = change(&mut state.registry);
        // Only after the lock is released, so that a woken task finds the change.
        drop(state);
        self.changed.send_replace(());
        done
    }

    /// The same for one workspace, if it still exists.
    pub(crate) fn update<T>(&self, id: &WorkspaceId, change: impl FnOnce(&mut Workspace) -> T) -> Option<T> {
        self.change(|registry| registry.update(id, change))
    }

    pub(crate) fn set_status(&self, id: &WorkspaceId, status: Status) {
        self.update(id, |workspace| workspace.status = status.bounded());
    }

    pub(crate) fn workspace(&self, id: &WorkspaceId) -> Option<Workspace> {
        self.state().registry.get(id).cloned()
    }

    /// Tells the network which VMs share a team. The registry's lock is held for all of it, so that the network
    /// ends up with the latest state.
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
        // Under the lock, so that the next workspace with this address finds the attachment free.
        self.network.detach(id);
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

    /// For changes that already happened outside the ledger: a failed save is reported and repeated later.
    pub(crate) async fn save_or_warn(&self, what: &str) {
        if let Err(error) = self.save().await {
            tracing::error!(%error, "{what}, but the ledger could not be saved; will retry");
        }
    }

    /// For changes that can be found out again if they are lost: the ledger gets them with the next save, or soon.
    pub(crate) fn save_later(&self) {
        self.save_later.store(true, Ordering::Release);
    }

    /// Whether there is an unsaved change that no task is saving.
    pub(crate) fn ledger_is_behind(&self) -> bool {
        self.save_later.swap(false, Ordering::AcqRel) || self.store.is_behind()
    }

    pub(crate) fn spec(&self, workspace: &Workspace) -> VmSpec {
        self.spec_as(workspace, workspace.id)
    }

    /// The specification of a workspace's VM under another id, and so in other directories.
    pub(crate) fn spec_as(&self, workspace: &Workspace, id: WorkspaceId) -> VmSpec {
        let of = Of {
            id,
            hostname: workspace.name.hostname(),
            address: workspace.address,
            resources: workspace.resources,
            image: &workspace.image,
        };
        vm_spec(&self.config, of)
    }

    /// Writes into a new directory that it has no owner, so that it is removed after a crash.
    pub(crate) async fn describe_unowned(&self, spec: &VmSpec, holds: Holds) -> Result<(), LedgerError> {
        let (directory, description) = (spec.data_dir.clone(), Description::new(spec.id, 0, holds));
        let written = tokio::task::spawn_blocking(move || {
            let made = agentiso_sys::files::make_private_dir(&directory);
            made.map_err(|error| LedgerError::Io { path: directory.clone(), source: error.source })?;
            write_workspace(&directory, &description)
        });
        let failed =
            |error| LedgerError::Io { path: spec.data_dir.clone(), source: std::io::Error::other(error) };
        written.await.map_err(failed)?
    }

    /// The specification of a VM for the warm pool: like any other, with an id and an address that no workspace
    /// has, and without a name of its own.
    pub(crate) fn standby_spec(
        &self,
        identity: VmIdentity,
        image: &ImageRef,
        resources: Resources,
    ) -> VmSpec {
        let VmIdentity { id, address } = identity;
        vm_spec(&self.config, Of { id, hostname: "standby".to_owned(), address, resources, image })
    }
}
