//! All workspaces of one daemon: reservation, lookup, ownership.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Instant;

use agentiso_core::address::{AddressPool, Subnet};
use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::memory::HostMemory;
use agentiso_core::names::{WorkspaceName, WorkspaceRef};
use agentiso_core::quota::{SESSION_QUOTA, Usage};
use agentiso_core::rate::RateLevels;
use agentiso_core::resources::{OutOfRange, ResourceLimits, Resources};
use agentiso_core::suggest::nearest;
use agentiso_core::team::Teams;

use super::entry::{Lifetime, Status, Workspace};
use super::sessions::{SessionKind, Sessions, TakeoverRefusal};
use super::snapshots::Snapshots;
use crate::error::{McpBridgeError, OpError};
use crate::info::{ForkedFrom, NetworkInfo, VmIdentity};
use crate::ledger::{Mended, Quarantine};
use crate::vms::ImageRef;

/// The number of names in a "not found" error: enough to pick from, too few to flood a context.
pub(super) const NAMES_IN_ERRORS: usize = 20;

const GIB: u64 = 1 << 30;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) resources: ResourceLimits,
    pub(crate) max_workspaces: u32,
    /// Limit on workspaces plus VMs of the warm pool.
    pub(crate) max_total_vms: u32,
    pub(crate) subnet: Subnet,
}

/// A create request whose defaults are filled in.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The identity of a VM that is already running; otherwise a new one is made.
    pub(crate) place: Option<VmIdentity>,
    pub(crate) name: Option<WorkspaceName>,
    pub(crate) image: ImageRef,
    pub(crate) resources: Resources,
    pub(crate) network: NetworkInfo,
    pub(crate) created_at: jiff::Timestamp,
    pub(crate) lifetime: Lifetime,
}

#[derive(Clone, Debug)]
pub(crate) struct Registry {
    pub(super) workspaces: BTreeMap<WorkspaceId, Workspace>,
    pub(super) addresses: AddressPool,
    pub(super) created_total: u64,
    /// Forks that wait for their turn to boot: they hold names and quota, but no memory yet.
    pub(super) waiting_forks: BTreeSet<WorkspaceId>,
    /// The number of VMs in the warm pool, which are no workspaces yet.
    standbys: u64,
    pub(crate) sessions: Sessions,
    pub(crate) teams: Teams,
    /// The used part of the rate limits of calls.
    pub(crate) rates: RateLevels,
    /// Workspaces and teams that were found and are not used.
    pub(crate) quarantine: Quarantine,
    /// Addresses that are reserved for the quarantine.
    pub(super) held_addresses: BTreeSet<Ipv4Addr>,
    /// Report of the last start that had to repair something.
    pub(crate) mended: Option<Mended>,
    limits: Limits,
}

impl Registry {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            workspaces: BTreeMap::new(),
            addresses: AddressPool::new(limits.subnet),
            created_total: 0,
            waiting_forks: BTreeSet::new(),
            standbys: 0,
            sessions: Sessions::default(),
            teams: Teams::default(),
            rates: RateLevels::default(),
            quarantine: Quarantine::default(),
            held_addresses: BTreeSet::new(),
            mended: None,
            limits,
        }
    }

    pub(crate) fn get(&self, id: &WorkspaceId) -> Option<&Workspace> {
        self.workspaces.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Workspace> {
        self.workspaces.values()
    }

    /// Whether the first digits of an id, which name its run directory, belong to a workspace or to something in
    /// quarantine.
    fn knows_short(&self, short: &str) -> bool {
        self.workspaces.keys().any(|id| id.short() == short) || self.quarantine.knows_short(short)
    }

    pub(crate) fn find(&self, wanted: &WorkspaceRef) -> Result<&Workspace, OpError> {
        let found = match wanted {
            WorkspaceRef::Id(id) => self.workspaces.get(id),
            WorkspaceRef::Name(name) => {
                let named = |name: &str| self.workspaces.values().find(|w| w.name.as_str() == name);
                let member = || self.workspaces.get(&self.teams.member_named(name)?.workspace_id?);
                named(name).or_else(member)
            }
        };
        found.ok_or_else(|| {
            let names = || self.workspaces.values().map(|w| w.name.as_str());
            let wanted = wanted.to_string();
            OpError::NotFound {
                nearest: nearest(&wanted, names()).map(str::to_owned),
                known: names().take(NAMES_IN_ERRORS).map(str::to_owned).collect(),
                // The client may have written anything; only the beginning is repeated.
                wanted: wanted.chars().take(128).collect(),
            }
        })
    }

    /// Finds a workspace that the session may use.
    pub(crate) fn find_owned(
        &self,
        wanted: &WorkspaceRef,
        session: &SessionId,
        kind: SessionKind,
    ) -> Result<&Workspace, OpError> {
        if let SessionKind::Bound(id) = kind {
            let found = self.find(wanted).ok().filter(|workspace| workspace.id == id);
            // Missing and foreign workspaces get the same answer: programs inside must not learn which others
            // exist.
            let wanted = || wanted.to_string().chars().take(128).collect();
            return found.ok_or_else(|| McpBridgeError::Elsewhere { wanted: wanted() }.into());
        }
        let workspace = self.find(wanted)?;
        if kind == SessionKind::Shell || workspace.owner.as_ref() == Some(session) {
            return Ok(workspace);
        }
        let idle = workspace.owner.as_ref().and_then(|owner| self.sessions.idle(owner, Instant::now()));
        Err(OpError::NotOwned {
            name: workspace.name.clone(),
            owner: workspace.owner.clone(),
            idle_secs: idle.map(|idle| idle.as_secs()),
        })
    }

    /// Ports of the host that are forwarded to other workspaces than this one, or will be when they become
    /// available.
    pub(crate) fn forwarded_ports(&self, except: &WorkspaceId) -> BTreeSet<u16> {
        let others = self.iter().filter(|workspace| workspace.id != *except);
        others
            .flat_map(|workspace| &workspace.network.port_forwards)
            .map(|forward| forward.host_port)
            .collect()
    }

    /// The workspace that has this address.
    pub(crate) fn at_address(&self, address: Ipv4Addr) -> Option<&Workspace> {
        self.workspaces.values().find(|workspace| workspace.address == address)
    }

    /// Finds a workspace that the session may destroy: its own, one without a live owner, or with `force` one whose
    /// owner has been silent for long enough.
    pub(crate) fn find_destroyable(
        &self,
        wanted: &WorkspaceRef,
        session: &SessionId,
        kind: SessionKind,
        force: bool,
        now: Instant,
    ) -> Result<&Workspace, OpError> {
        kind.refuse_inside()?;
        match self.find_owned(wanted, session, kind) {
            Err(OpError::NotOwned { .. }) => {
                let workspace = self.find(wanted)?;
                self.check_takeover(workspace, force, now)?;
                Ok(workspace)
            }
            found => found,
        }
    }

    pub(crate) fn usage(&self, session: &SessionId) -> Usage {
        let add = |sum: Usage, of: Usage| Usage {
            workspaces: sum.workspaces + of.workspaces,
            memory_mb: sum.memory_mb + of.memory_mb,
            disk_gb: sum.disk_gb + of.disk_gb,
        };
        let owned = self.workspaces.values().filter(|w| w.owner.as_ref() == Some(session));
        owned.map(|w| Usage::of(&w.resources)).fold(Usage::default(), add)
    }

    /// Takes name, address and quota for a workspace that is about to be made, or nothing at all.
    pub(crate) fn reserve(
        &mut self,
        wanted: Wanted,
        session: &SessionId,
        kind: SessionKind,
        memory: Option<HostMemory>,
    ) -> Result<Workspace, OpError> {
        kind.refuse_inside()?;
        let problems = self.problems(&wanted);
        if !problems.is_empty() {
            return Err(OpError::OutOfRange(problems));
        }
        if let Some(name) = wanted.name.as_ref().filter(|name| self.is_named(name)) {
            return Err(OpError::NameTaken { name: name.clone() });
        }
        self.admit_workspaces(1)?;
        if wanted.place.is_none() {
            self.admit_vms(1)?;
        }
        if kind == SessionKind::Client {
            self.usage(session).reserve(Usage::of(&wanted.resources), SESSION_QUOTA)?;
        }
        self.admit_memory(wanted.resources.memory_mb, memory)?;
        self.insert(wanted, session, None)
    }

    pub(super) fn is_named(&self, name: &WorkspaceName) -> bool {
        self.workspaces.values().any(|w| w.name == *name)
    }

    /// Whether so many more workspaces may exist.
    pub(crate) fn admit_workspaces(&self, more: u64) -> Result<(), OpError> {
        let (used, limit) = (self.workspaces.len() as u64, u64::from(self.limits.max_workspaces));
        if used.saturating_add(more) > limit {
            return Err(OpError::TooManyWorkspaces { used, limit });
        }
        Ok(())
    }

    /// Whether so many more VMs may exist, including those of the warm pool.
    pub(crate) fn admit_vms(&self, more: u64) -> Result<(), OpError> {
        let used = self.workspaces.len() as u64 + self.standbys;
        let limit = u64::from(self.limits.max_total_vms);
        if used.saturating_add(more) > limit {
            return Err(OpError::TooManyVms { used, limit });
        }
        Ok(())
    }

    /// Enters a workspace that is about to be made; the limits were checked before.
    pub(super) fn insert(
        &mut self,
        wanted: Wanted,
        session: &SessionId,
        forked_from: Option<ForkedFrom>,
    ) -> Result<Workspace, OpError> {
        let id = wanted.place.map_or_else(|| self.fresh_id(), |place| place.id);
        let name = wanted.name.unwrap_or_else(|| match &forked_from {
            Some(_) => WorkspaceName::default_for_fork(&id),
            None => WorkspaceName::default_for(&id),
        });
        if self.is_named(&name) {
            return Err(OpError::NameTaken { name });
        }
        let address = match wanted.place {
            Some(place) => {
                self.standbys = self.standbys.saturating_sub(1);
                place.address
            }
            None => self.addresses.take()?,
        };
        let workspace = Workspace {
            id,
            name,
            image: wanted.image,
            resources: wanted.resources,
            address,
            network: wanted.network,
            created_at: wanted.created_at,
            owner: Some(session.clone()),
            status: Status::Creating { vm: None },
            rung: None,
            snapshots: Snapshots::default(),
            forked_from,
            bridge_token: None,
            lifetime: wanted.lifetime,
            out_of_reach: None,
        };
        self.teams.fill(&workspace.name, session, id);
        self.workspaces.insert(id, workspace.clone());
        self.created_total += 1;
        Ok(workspace)
    }

    fn problems(&self, wanted: &Wanted) -> Vec<OutOfRange> {
        let mut problems = wanted.resources.problems(&self.limits.resources);
        let image_gb = wanted.image.virtual_size.div_ceil(GIB);
        let disk_gb = u64::from(wanted.resources.disk_gb);
        if disk_gb < image_gb && !problems.iter().any(|problem| problem.field == "disk_gb") {
            let max = self.limits.resources.max_disk_gb.into();
            problems.push(OutOfRange { field: "disk_gb", value: disk_gb, min: image_gb, max });
        }
        problems
    }

    /// Takes an id and an address for a VM that is no workspace yet.
    pub(crate) fn take_identity(&mut self) -> Result<VmIdentity, OpError> {
        self.admit_vms(1)?;
        let place = VmIdentity { id: self.fresh_id(), address: self.addresses.take()? };
        self.standbys += 1;
        Ok(place)
    }

    /// Gives back an id and an address that no workspace ever had.
    pub(crate) fn release_identity(&mut self, place: VmIdentity) {
        self.addresses.release(place.address);
        self.standbys = self.standbys.saturating_sub(1);
    }

    /// An id whose short form, which names the run directory, is free as well.
    pub(crate) fn fresh_id(&self) -> WorkspaceId {
        loop {
            let id = WorkspaceId::random();
            if !self.knows_short(&id.short()) {
                return id;
            }
        }
    }

    /// Whether the host has memory for one more VM.
    pub(crate) fn admit_memory(&self, wanted_mb: u32, memory: Option<HostMemory>) -> Result<(), OpError> {
        let Some(memory) = memory else { return Ok(()) };
        let comes_up = |w: &&Workspace| w.status.is_coming_up() && !self.waiting_forks.contains(&w.id);
        let pending = self.workspaces.values().filter(comes_up);
        let pending_mb = pending.map(|w| u64::from(w.resources.memory_mb)).sum();
        Ok(memory.admit(wanted_mb.into(), pending_mb)?)
    }

    pub(crate) fn update<T>(
        &mut self,
        id: &WorkspaceId,
        change: impl FnOnce(&mut Workspace) -> T,
    ) -> Option<T> {
        self.workspaces.get_mut(id).map(change)
    }

    /// Removes a workspace: its name, address and share of the quota are free again.
    pub(crate) fn remove(&mut self, id: &WorkspaceId) -> Option<Workspace> {
        let workspace = self.workspaces.remove(id)?;
        self.waiting_forks.remove(id);
        self.addresses.release(workspace.address);
        self.forget_ghosts();
        Some(workspace)
    }

    pub(crate) fn close_session(&mut self, session: &SessionId) {
        self.sessions.close(session);
        self.forget_ghosts();
    }

    fn forget_ghosts(&mut self) {
        let workspaces = &self.workspaces;
        self.sessions.forget_ghosts(|id| workspaces.values().any(|w| w.owner.as_ref() == Some(id)));
    }

    /// Whether the owner must give it up.
    fn check_takeover(&self, workspace: &Workspace, force: bool, now: Instant) -> Result<(), OpError> {
        let Some(owner) = &workspace.owner else { return Ok(()) };
        let name = workspace.name.clone();
        self.sessions.may_be_taken_over(owner, force, now).map_err(|kept| match kept {
            TakeoverRefusal::Active(idle) => OpError::OwnerActive { name, idle_secs: idle.as_secs() },
            TakeoverRefusal::Connected(idle) => OpError::OwnerConnected { name, idle_secs: idle.as_secs() },
        })
    }

    /// Makes the session the owner. Without `force` a live owner keeps its workspaces however long it has been
    /// silent; with it, only an owner that made a call in the last minute does.
    pub(crate) fn adopt(
        &mut self,
        id: &WorkspaceId,
        session: &SessionId,
        kind: SessionKind,
        force: bool,
        now: Instant,
    ) -> Result<&Workspace, OpError> {
        kind.refuse_inside()?;
        let workspace = self.find(&WorkspaceRef::Id(*id))?;
        let usage = Usage::of(&workspace.resources);
        if workspace.owner.as_ref() != Some(session) {
            if kind == SessionKind::Client {
                self.check_takeover(workspace, force, now)?;
                // Checked before the old owner loses it: a refusal must change nothing.
                self.usage(session).reserve(usage, SESSION_QUOTA)?;
            }
            self.update(id, |workspace| {
                workspace.owner = Some(session.clone());
                // A workspace that is adopted is wanted, so it lasts.
                workspace.lifetime = Lifetime::Lasting;
            });
            self.forget_ghosts();
        }
        self.find(&WorkspaceRef::Id(*id))
    }

    /// The workspaces that a bulk adopt tries. Without force: those without a live owner.
    pub(crate) fn adoptable(&self, session: &SessionId, force: bool, now: Instant) -> Vec<WorkspaceId> {
        let foreign = self.workspaces.values().filter(|w| w.owner.as_ref() != Some(session));
        foreign.filter(|w| force || self.check_takeover(w, false, now).is_ok()).map(|w| w.id).collect()
    }

    pub(super) fn insert_restored(&mut self, workspace: Workspace) {
        let address: Ipv4Addr = workspace.address;
        if !self.addresses.claim(address) {
            tracing::warn!(workspace = %workspace.name, %address, "its address is not in the configured subnet");
        }
        self.workspaces.insert(workspace.id, workspace);
    }
}
