//! The operations of one client's session. Every call checks ownership here and then leaves the work to the workspace's
//! runner.

mod creation;
mod export_import;
mod forks;
mod git;
mod guarded;
mod guest;
mod mcp_bridge;
mod metrics;
mod network;
mod one_call;
mod prepare;
mod quarantine;
mod snapshots;
mod swarm;
mod teams;
mod vault;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::lifecycle::{Operation, PublicState};
use agentiso_core::names::{WorkspaceName, WorkspaceRef};
use agentiso_core::network::NetworkPolicy;
use agentiso_core::rate::RateCategory;
use agentiso_core::resources::Resources;

use crate::error::OpError;
use crate::first_turn::Turn;
use crate::handle::{Answer, Handle, Live, Request};
use crate::info::{Adopted, BulkAdopted, CreateRequest, Created, LogKind, Logs, NetworkInfo, WorkspaceInfo};
use crate::logs;
use crate::pool::Standby;
use crate::refill;
use crate::registry::{Lifetime, Registry, SessionKind, Wanted, Workspace};
use crate::runner::Seed;
use crate::shared::Shared;
use crate::vms::{HostFacts, ImageFailure, ImageRef, Progress, Rung, SizesOf, TemplateInfo, Vm, VolumeSizes};

pub use git::{MergeRequest, Merged, MergedSource};
pub use guest::{ExecStream, Guest, Transferred};
pub use mcp_bridge::BridgeAccess;
pub use prepare::{PrepareRequest, Prepared};
pub use quarantine::{QuarantineItem, QuarantineKind, Recovered};
pub use swarm::{
    SwarmDone, SwarmMerge, SwarmMerged, SwarmRequest, SwarmTask, TaskDone, TaskOutcome, VaultQuery,
    VaultQueryKind,
};
pub(crate) use teams::recover as recover_teams;
pub use teams::{MemberInfo, Received, RoleRequest, Sent, TeamInfo, TeamRequest};
pub use watch::Watch;

/// The longest time that a call waits for a VM that the daemon is finding again after a restart. Clients give most
/// calls 30 seconds.
const ATTACH_WAIT: Duration = Duration::from_secs(20);

/// A handle to a session. When the last clone is dropped the session becomes a ghost: its workspaces stay and can be
/// adopted.
#[derive(Clone, Debug)]
pub struct Session(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    id: SessionId,
    kind: SessionKind,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nothing to save: the ledger has the ownership already, and a restart makes every session a ghost.
        self.shared.state().registry.close_session(&self.id);
    }
}

/// Marks the session as active while a call runs.
#[derive(Debug)]
pub(crate) struct Call(Session);

impl Drop for Call {
    fn drop(&mut self) {
        let Inner { shared, id, .. } = &*self.0.0;
        shared.state().registry.sessions.call_ends(id, Instant::now());
    }
}

impl Session {
    pub(crate) fn open(shared: Arc<Shared>, kind: SessionKind) -> Self {
        let id = match kind {
            SessionKind::Client | SessionKind::Bound(_) => SessionId::random(),
            SessionKind::Shell => SessionId::shell(),
        };
        shared.state().registry.sessions.open(&id, jiff::Timestamp::now());
        Self(Arc::new(Inner { shared, id, kind }))
    }

    pub fn id(&self) -> &SessionId {
        &self.0.id
    }

    pub fn kind(&self) -> SessionKind {
        self.0.kind
    }

    /// The largest VM that the configuration allows.
    pub fn resource_limits(&self) -> agentiso_core::resources::ResourceLimits {
        self.shared().config.resource_limits()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn begin_call(&self) -> Call {
        self.shared().state().registry.sessions.call_begins(&self.0.id, Instant::now());
        Call(self.clone())
    }

    fn refuse_when_closing(&self) -> Result<(), OpError> {
        if self.shared().closing.is_cancelled() { Err(OpError::ShuttingDown) } else { Ok(()) }
    }

    /// Counts calls of a client against the daemon's rate limit; called once their arguments are known to be valid. A
    /// user at the shell is not limited.
    pub fn charge(&self, category: RateCategory, calls: u32) -> Result<(), OpError> {
        match self.0.kind {
            // Sessions from inside a workspace are not counted, so that they cannot use up the limit that all clients
            // share.
            SessionKind::Shell | SessionKind::Bound(_) => Ok(()),
            SessionKind::Client => {
                let shared = self.shared();
                let levels = &mut shared.state().registry.rates;
                levels.charge(category, calls, &shared.config.rate_limit, jiff::Timestamp::now())?;
                Ok(())
            }
        }
    }

    fn view(&self, registry: &Registry, workspace: &Workspace) -> WorkspaceInfo {
        let network_trouble = self.shared().network.trouble(&workspace.id);
        WorkspaceInfo { network_trouble, ..registry.info(workspace, &self.0.id) }
    }

    /// Refuses to begin anything on a disk that is nearly full.
    pub(crate) fn refuse_when_full(&self) -> Result<(), OpError> {
        let space = self.shared().vms.host_space();
        self.shared().space.promise(space, 0).map(drop).map_err(OpError::from)
    }

    /// Creates a workspace and returns when its guest answers. Dropping the future undoes it.
    pub async fn create(&self, request: CreateRequest, progress: &Progress) -> Result<Created, OpError> {
        self.create_for(Lifetime::Lasting, request, progress).await
    }

    /// Like [`Self::create`], for a workspace that may exist for one call only.
    async fn create_for(
        &self,
        lifetime: Lifetime,
        request: CreateRequest,
        progress: &Progress,
    ) -> Result<Created, OpError> {
        let _call = self.begin_call();
        self.refuse_when_closing()?;
        let wanted = Wanted { lifetime, ..self.resolve(request)? };
        self.refuse_when_full()?;
        let (reserved, seed) = match self.shared().pool.claim(&wanted.image, wanted.resources) {
            Some(standby) => self.reserve_standby(wanted, standby)?,
            None => (self.reserve(wanted).await?, Seed::Image),
        };
        let finished = self.begin_creation(reserved, seed, progress).finished().await?;
        let (info, delivered) = finished.accept(self)?;
        let from_pool = info.rung == Some(Rung::Pool);
        Ok(Created { info, boot_time_ms: delivered.boot_time_ms, from_pool })
    }

    /// Gives a VM of the warm pool to a new workspace. Its memory is in use already.
    fn reserve_standby(&self, wanted: Wanted, standby: Standby) -> Result<(Workspace, Seed), OpError> {
        let wanted = Wanted { place: Some(standby.identity), ..wanted };
        let reserved =
            self.shared().change(|registry| registry.reserve(wanted, &self.0.id, self.0.kind, None));
        match reserved {
            Ok(reserved) => Ok((reserved, Seed::Standby(Box::new(standby)))),
            Err(refusal) => {
                self.shared().pool.give_back(standby);
                Err(refusal)
            }
        }
    }

    async fn reserve(&self, wanted: Wanted) -> Result<Workspace, OpError> {
        let reserve = |wanted| {
            let memory = self.shared().vms.host_memory();
            self.shared().change(|registry| registry.reserve(wanted, &self.0.id, self.0.kind, memory))
        };
        let reserved = reserve(wanted.clone());
        let is_short = matches!(
            reserved,
            Err(OpError::HostMemory(_) | OpError::NoAddress(_) | OpError::TooManyVms { .. })
        );
        let spare = self.shared().pool.drain_if(is_short);
        if spare.is_empty() {
            return reserved;
        }
        // A real request outranks the warm pool.
        refill::discard(self.shared(), spare).await;
        reserve(wanted)
    }

    fn info_of(&self, workspace: &Workspace) -> Result<WorkspaceInfo, OpError> {
        let registry = &self.shared().state().registry;
        registry.find(&WorkspaceRef::Id(workspace.id)).map(|workspace| self.view(registry, workspace))
    }

    /// Fills in the defaults for what the request leaves open.
    fn resolve(&self, request: CreateRequest) -> Result<Wanted, OpError> {
        let config = &self.shared().config;
        let default = config.default_resources();
        let image = request.base_image.unwrap_or_else(|| config.storage.base_image.clone());
        let policy = request.network.apply_to(&self.default_network().policy)?;
        policy.check_length()?;
        Ok(Wanted {
            place: None,
            name: request.name,
            image: self.image(&image)?,
            resources: Resources {
                vcpus: request.vcpus.unwrap_or(default.vcpus),
                memory_mb: request.memory_mb.unwrap_or(default.memory_mb),
                disk_gb: request.disk_gb.unwrap_or(default.disk_gb),
            },
            network: NetworkInfo { policy, port_forwards: Vec::new() },
            created_at: jiff::Timestamp::now(),
            lifetime: Lifetime::Lasting,
        })
    }

    /// Whether a workspace reaches the internet if its request does not say.
    pub fn has_internet_by_default(&self) -> bool {
        self.default_network().policy.allow_internet
    }

    fn default_network(&self) -> NetworkInfo {
        let config = &self.shared().config.network;
        let policy = NetworkPolicy {
            allow_internet: config.default_allow_internet,
            allow_inter_vm: config.default_allow_inter_vm,
            ..NetworkPolicy::default()
        };
        NetworkInfo { policy, port_forwards: Vec::new() }
    }

    fn image(&self, name: &agentiso_core::names::ImageName) -> Result<ImageRef, OpError> {
        self.shared().vms.image(name).map_err(|failure| match failure {
            ImageFailure::Missing { name, known } => OpError::NoImage { name, known },
            ImageFailure::Broken { name, reason } => OpError::BrokenImage { name, reason },
        })
    }

    /// Destroys a workspace that this session owns, or whose owner is gone. Returns what it was.
    pub async fn destroy(&self, wanted: &WorkspaceRef) -> Result<WorkspaceInfo, OpError> {
        self.destroy_by_force(wanted, false).await
    }

    /// Like [`Self::destroy`]. With `force` it also destroys a workspace whose owner is connected but has been silent
    /// for long enough.
    pub async fn destroy_by_force(
        &self,
        wanted: &WorkspaceRef,
        force: bool,
    ) -> Result<WorkspaceInfo, OpError> {
        let _call = self.begin_call();
        self.refuse_when_closing()?;
        let (workspace, handle, info) = {
            let state = self.shared().state();
            let (id, kind, now) = (&self.0.id, self.0.kind, Instant::now());
            let found = state.registry.find_destroyable(wanted, id, kind, force, now)?.clone();
            let handle = state.runners.get(&found.id).cloned();
            let info = self.view(&state.registry, &found);
            (found, handle, info)
        };
        self.ask(&workspace, handle, Request::Destroy).await?;
        Ok(info)
    }

    pub async fn start(&self, wanted: &WorkspaceRef, progress: &Progress) -> Result<WorkspaceInfo, OpError> {
        let _call = self.begin_call();
        let (workspace, handle) = self.accepted(wanted, Operation::Start)?;
        self.ask(&workspace, handle, Request::Start { progress: progress.clone() }).await?;
        self.info_of(&workspace)
    }

    pub async fn stop(&self, wanted: &WorkspaceRef) -> Result<WorkspaceInfo, OpError> {
        let _call = self.begin_call();
        let (workspace, handle) = self.accepted(wanted, Operation::Stop)?;
        self.ask(&workspace, handle, Request::Stop).await?;
        self.info_of(&workspace)
    }

    fn accepted(
        &self,
        wanted: &WorkspaceRef,
        operation: Operation,
    ) -> Result<(Workspace, Option<Handle>), OpError> {
        self.refuse_when_closing()?;
        let state = self.shared().state();
        let workspace = state.registry.find_owned(wanted, &self.0.id, self.0.kind)?;
        workspace.accept(operation)?;
        Ok((workspace.clone(), state.runners.get(&workspace.id).cloned()))
    }

    async fn ask(
        &self,
        workspace: &Workspace,
        handle: Option<Handle>,
        request: Request,
    ) -> Result<Answer, OpError> {
        match handle {
            Some(handle) => handle.ask(&workspace.name, request).await,
            None => Err(OpError::Busy { name: workspace.name.clone() }),
        }
    }

    /// All workspaces, oldest first, including those of other sessions.
    pub fn list(&self, filter: Option<PublicState>) -> Vec<WorkspaceInfo> {
        let _call = self.begin_call();
        let registry = &self.shared().state().registry;
        let mut all: Vec<_> = registry
            .iter()
            .filter(|workspace| match self.0.kind {
                SessionKind::Client | SessionKind::Shell => true,
                SessionKind::Bound(id) => workspace.id == id,
            })
            .map(|workspace| self.view(registry, workspace))
            .filter(|info| filter.is_none_or(|wanted| info.state == wanted))
            .collect();
        all.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
        all
    }

    pub async fn info(&self, wanted: &WorkspaceRef) -> Result<WorkspaceInfo, OpError> {
        let _call = self.begin_call();
        let workspace = self.owned(wanted)?;
        let mut info = self.info_of(&workspace)?;
        let Some(usage) = self.volume_usage(&workspace, SizesOf::All).await else { return Ok(info) };
        info.disk_used_bytes = Some(usage.used_bytes);
        info.disk_volsize_bytes = Some(usage.virtual_bytes);
        info.snapshots.iter_mut().for_each(|snapshot| snapshots::fill_in(snapshot, &usage));
        Ok(info)
    }

    async fn volume_usage(&self, workspace: &Workspace, of: SizesOf) -> Option<VolumeSizes> {
        let (vms, spec) = (Arc::clone(&self.shared().vms), self.shared().spec(workspace));
        tokio::task::spawn_blocking(move || vms.volume_usage(&spec, of)).await.unwrap_or_default()
    }

    fn owned(&self, wanted: &WorkspaceRef) -> Result<Workspace, OpError> {
        let state = self.shared().state();
        state.registry.find_owned(wanted, &self.0.id, self.0.kind).cloned()
    }

    /// The last lines that the VM logged. The logs are kept until the workspace is destroyed.
    pub async fn logs(
        &self,
        wanted: &WorkspaceRef,
        kind: LogKind,
        max_lines: usize,
    ) -> Result<Logs, OpError> {
        let _call = self.begin_call();
        let workspace = self.owned(wanted)?;
        if kind == LogKind::Network {
            let records = self.shared().network.log(&workspace.id).map(|log| log.tail(max_lines));
            let lines: Vec<_> = records.iter().flatten().map(ToString::to_string).collect();
            return Ok(Logs { network: Some(lines.join("\n")), ..Logs::default() });
        }
        let directory = self.shared().spec(&workspace).data_dir;
        let read = tokio::task::spawn_blocking(move || logs::read(&directory, kind, max_lines)).await;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        read.map_err(|source| OpError::Logs { name: workspace.name, source })
    }

    /// Makes this session the owner of a workspace.
    pub async fn adopt(&self, wanted: &WorkspaceRef, force: bool) -> Result<Adopted, OpError> {
        let _call = self.begin_call();
        let id = self.shared().state().registry.find(wanted)?.id;
        let before = self.shared().workspace(&id).and_then(|workspace| workspace.owner);
        let info = self.shared().change(|registry| {
            let adopted = registry.adopt(&id, &self.0.id, self.0.kind, force, Instant::now())?.clone();
            Ok::<_, OpError>(self.view(registry, &adopted))
        })?;
        if let Err(error) = self.shared().save().await {
            self.shared().update(&id, |workspace| workspace.owner = before);
            return Err(OpError::Ledger(error));
        }
        Ok(Adopted { info, forced: force })
    }

    /// Adopts those of the named workspaces that have no connected owner, and returns their names. A workspace that
    /// does not exist or may not be adopted is skipped: the call that needs it reports the error.
    pub async fn adopt_ownerless(&self, wanted: &[WorkspaceRef]) -> Vec<WorkspaceName> {
        let mut adopted = Vec::new();
        if self.0.kind != SessionKind::Client {
            return adopted;
        }
        for wanted in wanted {
            let is_ours = |workspace: &Workspace| workspace.owner.as_ref() == Some(&self.0.id);
            let foreign = match self.shared().state().registry.find(wanted) {
                Ok(workspace) if !is_ours(workspace) => WorkspaceRef::Id(workspace.id),
                Ok(_) | Err(_) => continue,
            };
            if let Ok(taken) = self.adopt(&foreign, false).await {
                adopted.push(taken.info.name);
            }
        }
        adopted
    }

    /// Adopts all workspaces without a connected owner. With `force` it tries every workspace that this session does
    /// not own, and reports the refusals.
    pub async fn adopt_all(&self, force: bool) -> BulkAdopted {
        let _call = self.begin_call();
        let wanted = self.shared().state().registry.adoptable(&self.0.id, force, Instant::now());
        let mut result = BulkAdopted::default();
        for id in wanted {
            match self.adopt(&WorkspaceRef::Id(id), force).await {
                Ok(adopted) => result.adopted.push(adopted.info),
                Err(error) => result.errors.push((id, error.to_string())),
            }
        }
        result
    }

    /// The guest of a running workspace. Waits if the daemon is still finding the VM again after a restart.
    pub async fn guest(&self, wanted: &WorkspaceRef) -> Result<Guest, OpError> {
        let _call = self.begin_call();
        let (workspace, handle) = self.accepted(wanted, Operation::UseGuest)?;
        let vm = self.vm_of(&workspace, handle).await?;
        Ok(Guest::new(self.clone(), workspace.id, workspace.name, vm))
    }

    /// Waits until a VM that has just started may run its first command.
    pub(crate) async fn first_turn(&self, id: &WorkspaceId) -> Option<Turn> {
        self.shared().first_turns.take(id).await
    }

    async fn vm_of(&self, workspace: &Workspace, handle: Option<Handle>) -> Result<Arc<dyn Vm>, OpError> {
        workspace.admit(Operation::UseGuest)?;
        let attaching = || OpError::StillAttaching { name: workspace.name.clone() };
        let mut live = handle.ok_or_else(attaching)?.live;
        let is_found = |live: &Live| !matches!(live, Live::Attaching | Live::OutOfReach { .. });
        let found = match tokio::time::timeout(ATTACH_WAIT, live.wait_for(is_found)).await {
            Ok(Ok(live)) => live.vm(),
            // It was not found in time, or the runner ended because the workspace is gone.
            Err(_) | Ok(Err(_)) => None,
        };
        match found {
            Some(vm) => Ok(vm),
            None => {
                let registry = &self.shared().state().registry;
                registry.find(&WorkspaceRef::Id(workspace.id))?.admit(Operation::UseGuest)?;
                Err(attaching())
            }
        }
    }

    /// The facts about this host that matter for running VMs.
    pub(crate) async fn host_facts(&self) -> Result<HostFacts, OpError> {
        let facts = self.shared().vms.facts().await;
        facts.map_err(|failure| OpError::HostUnfit { reason: failure.to_string() })
    }

    pub fn templates(&self) -> Vec<TemplateInfo> {
        self.shared().vms.templates()
    }

    /// The workspaces that were made from an image and would be lost without it.
    pub(crate) fn image_users(&self, image: &agentiso_core::names::ImageName) -> Vec<WorkspaceInfo> {
        let mut users = self.list(None);
        users.retain(|info| &info.base_image == image);
        users
    }
}
