//! Recovers items from quarantine: an item is entered in the registry, saved, and only then loses its marker. A VM that
//! runs on it goes on running.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::lifecycle::Phase;
use agentiso_core::names::{ImageName, WorkspaceName};
use agentiso_core::resources::Resources;
use agentiso_core::team::Team;
use serde::{Deserialize, Serialize};

use super::list::{Wanted, team_id};
use crate::error::{OpError, QuarantineError};
use crate::ledger::{
    DescribedWorkspace, KeptContent, KeptTeam, KeptWorkspace, StoredImage, StoredWorkspace, TeamKey,
    remove_marker, team_directory,
};
use crate::registry::{self, Listing, Workspace};
use crate::runner;
use crate::session::Session;
use crate::session::teams;
use crate::vm_spec::{Of, vm_spec};
use crate::vms::{ImageRef, SizesOf, VmRecord, VolumeSizes};

const GIB: u64 = 1 << 30;

/// A recovered item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    pub id: String,
    pub name: String,
    /// Differences from before: another name, another address, a forward whose port is taken.
    pub changes: Vec<String>,
}

impl Session {
    pub async fn recover(&self, wanted: &str) -> Result<Recovered, OpError> {
        self.kind().refuse_inside()?;
        self.refuse_when_closing()?;
        match self.find_in_quarantine(wanted)? {
            // Once begun it goes to its end, even if the client gives up.
            Wanted::Workspace(id) => {
                self.guarded(|session, _| async move { session.recover_workspace(id).await }).await
            }
            Wanted::Team(key) => {
                self.guarded(|session, _| async move { session.recover_team(key).await }).await
            }
        }
    }

    /// Takes the item out of quarantine first, so that nobody discards it meanwhile, and puts it back if it cannot be
    /// entered.
    async fn recover_workspace(&self, id: WorkspaceId) -> Result<Recovered, OpError> {
        let shared = self.shared();
        let Some(kept) = shared.change(|registry| registry.take_quarantined(&id)) else {
            return Err(QuarantineError::NotFound { wanted: id.to_string() }.into());
        };
        let (workspace, changes) = match self.enter_quarantined(id, &kept).await {
            Ok(entered) => entered,
            Err(error) => {
                shared.change(|registry| registry.put_back(&id, kept));
                return Err(error);
            }
        };
        shared.regroup();
        let directory = shared.config.paths.workspace_data(&id);
        let unmarked = tokio::task::spawn_blocking(move || remove_marker(&directory)).await;
        // If this fails, the ledger has the workspace already and the next start removes the marker.
        let what = format!("workspace {id}");
        unmarked
            .map_err(|_| OpError::ShuttingDown)?
            .map_err(|source| QuarantineError::Mark { what, source })?;
        shared.save_or_warn("a workspace was recovered").await;
        tracing::warn!(workspace = %workspace.name, %id, "recovered from the quarantine");
        Ok(Recovered { id: id.to_string(), name: workspace.name.to_string(), changes })
    }

    /// Enters the workspace in the registry, saves it and starts its runner, which takes over a running VM.
    async fn enter_quarantined(
        &self,
        id: WorkspaceId,
        kept: &KeptWorkspace,
    ) -> Result<(Workspace, Vec<String>), OpError> {
        let shared = self.shared();
        let what = format!("workspace {id}");
        let (described, listing) = match &kept.content {
            // The description may be older than the disk.
            KeptContent::Described(described) => ((**described).clone(), Listing::Uncertain),
            KeptContent::Newer(format) => {
                return Err(QuarantineError::Newer { what, format: *format }.into());
            }
            KeptContent::Undescribed => (self.describe_from_disk(id).await?, Listing::Uncertain),
            KeptContent::VmOnly => {
                let reason = "it has no directory, and so no disk".to_owned();
                return Err(QuarantineError::Unusable { what, reason }.into());
            }
        };
        let vm = self.running_vm(id).await;
        let (workspace, changes) = self.enter(id, &described)?;
        shared.save().await.map_err(OpError::Ledger)?;
        runner::take_up(shared, &workspace, vm.as_ref(), listing);
        Ok((workspace, changes))
    }

    /// Enters the workspace with a name, an address and forwards that are free, and says which of them changed.
    fn enter(
        &self,
        id: WorkspaceId,
        described: &DescribedWorkspace,
    ) -> Result<(Workspace, Vec<String>), OpError> {
        let owner = described.owner.as_ref();
        let mut entry = described.entry.clone();
        if described.is_meant_to_go() {
            // The user wants it, even if it was about to be destroyed.
            (entry.phase, entry.vm, entry.one_call) = (Phase::Stopped, None, false);
            entry.stop_reason =
                Some("it was recovered although it was unfinished or being destroyed".to_owned());
        }
        let stored = registry::restored(id, &entry, owner.map(|owner| owner.session_id.clone()));
        self.shared().change(|registry| {
            if let Some(owner) = owner {
                registry.sessions.restore_ghost(&owner.session_id, owner.created_at);
            }
            registry.recover(stored)
        })
    }

    async fn running_vm(&self, id: WorkspaceId) -> Option<VmRecord> {
        let vms = Arc::clone(&self.shared().vms);
        let strays = tokio::task::spawn_blocking(move || vms.strays()).await.unwrap_or_default();
        strays
            .into_iter()
            .find(|stray| stray.id == id && !stray.is_template_build())
            .map(|stray| stray.record)
    }

    /// Describes a workspace that has no description: its disk, with the size it has. Its snapshots are entered when
    /// the runner compares the disk with the ledger.
    async fn describe_from_disk(&self, id: WorkspaceId) -> Result<DescribedWorkspace, OpError> {
        let shared = self.shared();
        let defaults = shared.config.default_resources();
        let unusable = |reason: &str| QuarantineError::Unusable {
            what: format!("workspace {id}"),
            reason: reason.to_owned(),
        };
        let image = shared.config.storage.base_image.clone();
        let address = shared.change(|registry| registry.free_address())?;
        let mut entry = undescribed(id, defaults, image, address)
            .map_err(|_| unusable("no name could be made for it"))?;
        let of = Of {
            id,
            hostname: entry.name.hostname(),
            address,
            resources: defaults,
            image: &ImageRef { name: entry.image.name.clone(), id: entry.image.id.clone(), virtual_size: 0 },
        };
        let spec = vm_spec(&shared.config, of);
        let vms = Arc::clone(&shared.vms);
        let usage = tokio::task::spawn_blocking(move || vms.volume_usage(&spec, SizesOf::NoSnapshot)).await;
        let Some(VolumeSizes { virtual_bytes, .. }) = usage.unwrap_or_default() else {
            shared.change(|registry| registry.give_address_back(address));
            return Err(unusable("it has no readable disk").into());
        };
        entry.resources.disk_gb = u32::try_from(virtual_bytes.div_ceil(GIB)).unwrap_or(u32::MAX);
        entry.image.virtual_size = virtual_bytes;
        shared.change(|registry| registry.give_address_back(address));
        Ok(DescribedWorkspace { owner: None, entry })
    }

    async fn recover_team(&self, key: TeamKey) -> Result<Recovered, OpError> {
        let shared = self.shared();
        let (name, what) = (key.name.clone(), format!("team {key}"));
        let Some(kept) = shared.change(|registry| registry.quarantine.teams.remove(&key)) else {
            return Err(QuarantineError::NotFound { wanted: key.to_string() }.into());
        };
        if let Err(error) = self.enter_quarantined_team(&key, &kept).await {
            shared.change(|registry| registry.quarantine.teams.insert(key.clone(), kept));
            return Err(error);
        }
        let directory = team_directory(&shared.config.paths, &key);
        let unmarked = tokio::task::spawn_blocking(move || remove_marker(&directory)).await;
        unmarked
            .map_err(|_| OpError::ShuttingDown)?
            .map_err(|source| QuarantineError::Mark { what, source })?;
        tracing::warn!(team = %key, "recovered from the quarantine");
        Ok(Recovered { id: team_id(&key), name: name.to_string(), changes: Vec::new() })
    }

    /// Enters the team in the registry, saves it and resumes its members' tasks.
    async fn enter_quarantined_team(&self, key: &TeamKey, kept: &KeptTeam) -> Result<(), OpError> {
        let (shared, name) = (self.shared(), key.name.clone());
        let unusable = |reason| QuarantineError::Unusable { what: format!("team {key}"), reason };
        let team = kept.team.clone().ok_or_else(|| unusable(kept.marker.reason.clone()))?;
        let team = self.with_mail(key, team).await?;
        let found = teams::find_unfinished(shared, &name, &team);
        if !shared.change(|registry| registry.teams.restore(name.clone(), team)) {
            let reason = "another team has that name; destroy that one first".to_owned();
            return Err(unusable(reason).into());
        }
        if let Err(error) = shared.save().await {
            shared.change(|registry| registry.teams.remove(&name));
            return Err(OpError::Ledger(error));
        }
        shared.regroup();
        teams::resume_work(shared, found);
        Ok(())
    }

    /// Loads the members' pending tasks from their inboxes into the team.
    async fn with_mail(&self, key: &TeamKey, mut team: Team) -> Result<Team, OpError> {
        let (shared, name) = (Arc::clone(self.shared()), key.name.clone());
        let loaded =
            tokio::task::spawn_blocking(move || shared.mail.load(&name, &mut team).map(|()| team)).await;
        let unusable = |reason| QuarantineError::Unusable { what: format!("team {key}"), reason };
        let loaded = loaded.map_err(|_| OpError::ShuttingDown)?;
        Ok(loaded.map_err(|error| unusable(error.to_string()))?)
    }
}

/// A ledger entry for a disk of which nothing else is known.
fn undescribed(
    id: WorkspaceId,
    resources: Resources,
    image: ImageName,
    ip: std::net::Ipv4Addr,
) -> Result<StoredWorkspace, agentiso_core::names::NameError> {
    Ok(StoredWorkspace {
        name: WorkspaceName::parse(&format!("recovered-{}", id.short()))?,
        phase: Phase::Stopped,
        vm: None,
        stop_reason: Some("it was recovered from its disk alone".to_owned()),
        // The image it was made from is unknown. No image has this id, so no template is used for it.
        image: StoredImage { name: image, id: "unknown".to_owned(), virtual_size: 0 },
        resources,
        ip,
        network: Default::default(),
        created_at: jiff::Timestamp::now(),
        rung: None,
        snapshots: Vec::new(),
        removing: Vec::new(),
        current: None,
        restoring: None,
        forked_from: None,
        bridge_token: None,
        one_call: false,
    })
}
