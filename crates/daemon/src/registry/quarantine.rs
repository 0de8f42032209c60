//! Moves workspaces from the quarantine back into the registry, or out of both.

use std::net::Ipv4Addr;

use agentiso_core::address::SubnetFull;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceName;

use super::entry::Workspace;
use super::table::Registry;
use crate::error::OpError;
use crate::error::QuarantineError;
use crate::ledger::{KeptContent, KeptWorkspace, Quarantine};

/// Leaves room in a name for a dash and the first digits of an id.
const MAX_KEPT_NAME: usize = 100;

impl Registry {
    /// Takes over the quarantine and keeps the addresses in it reserved for a recovery.
    pub(crate) fn hold(&mut self, quarantine: Quarantine) {
        for kept in quarantine.workspaces.values() {
            self.hold_address(kept);
        }
        self.quarantine = quarantine;
    }

    fn hold_address(&mut self, kept: &KeptWorkspace) {
        if let KeptContent::Described(workspace) = &kept.content {
            let address = workspace.entry.ip;
            // An address that another workspace has by then is given up.
            if self.addresses.claim(address) {
                self.held_addresses.insert(address);
            }
        }
    }

    /// Takes a workspace out, to recover or delete it, so that no other call finds it meanwhile. Its address stays
    /// reserved.
    pub(crate) fn take_quarantined(&mut self, id: &WorkspaceId) -> Option<KeptWorkspace> {
        self.quarantine.workspaces.remove(id)
    }

    /// Undoes that, and a recovery that could not be saved.
    pub(crate) fn put_back(&mut self, id: &WorkspaceId, kept: KeptWorkspace) {
        self.remove(id);
        self.hold_address(&kept);
        self.quarantine.workspaces.insert(*id, kept);
    }

    /// Enters a workspace from the quarantine. Names, addresses and ports taken meanwhile are replaced; each
    /// replacement is reported.
    pub(crate) fn recover(&mut self, mut workspace: Workspace) -> Result<(Workspace, Vec<String>), OpError> {
        let mut changes = Vec::new();
        if let Some(other) = self.workspaces.values().find(|other| other.id.short() == workspace.id.short()) {
            let what = format!("workspace {}", workspace.id);
            let reason = format!("workspace {} has the same run directory; destroy it first", other.name);
            return Err(QuarantineError::Unusable { what, reason }.into());
        }
        if self.is_named(&workspace.name) {
            let cut: String = workspace.name.as_str().chars().take(MAX_KEPT_NAME).collect();
            let free = format!("{cut}-{}", workspace.id.short());
            let free = WorkspaceName::parse(&free)
                .ok()
                .filter(|free| !self.is_named(free))
                .ok_or_else(|| OpError::NameTaken { name: workspace.name.clone() })?;
            changes.push(format!(
                "it was renamed to {free}, because another workspace is named {}",
                workspace.name
            ));
            workspace.name = free;
        }
        let held = self.held_addresses.remove(&workspace.address);
        if !held && !self.addresses.claim(workspace.address) {
            let free = self.addresses.take()?;
            changes.push(format!(
                "its address is now {free}, because {} is in use; a running VM gets it at its next start",
                workspace.address
            ));
            workspace.address = free;
        }
        let taken = self.forwarded_ports(&workspace.id);
        workspace.network.port_forwards.retain(|forward| {
            let free = !taken.contains(&forward.host_port);
            if !free {
                changes.push(format!(
                    "host port {} is now forwarded to another workspace, so its own forward was removed",
                    forward.host_port
                ));
            }
            free
        });
        self.workspaces.insert(workspace.id, workspace.clone());
        Ok((workspace, changes))
    }

    /// Releases the address of a workspace that was taken out and deleted.
    pub(crate) fn forget_quarantined(&mut self, kept: &KeptWorkspace) {
        if let KeptContent::Described(workspace) = &kept.content
            && self.held_addresses.remove(&workspace.entry.ip)
        {
            self.addresses.release(workspace.entry.ip);
        }
    }

    pub(crate) fn free_address(&mut self) -> Result<Ipv4Addr, SubnetFull> {
        self.addresses.take()
    }

    pub(crate) fn give_address_back(&mut self, address: Ipv4Addr) {
        self.addresses.release(address);
    }
}
