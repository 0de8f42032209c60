//! The network policy of a workspace and its forwards. Both belong to the workspace whether it runs or not.

use std::collections::BTreeSet;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceRef;
use agentiso_core::network::PolicyChange;

use agentiso_net::flow::log::FlowRecord;
use tokio::sync::broadcast;

use super::Session;
use crate::error::OpError;
use crate::info::{MAX_FORWARDS, NetworkInfo, PortForward, WorkspaceInfo};
use crate::registry::{Registry, Workspace};

/// The last records, and a receiver of further ones until the workspace is gone.
pub(crate) type FollowedLog = (Vec<FlowRecord>, broadcast::Receiver<FlowRecord>);

impl Session {
    /// Changes the policy of a workspace, at once and permanently. Open flows that are no longer allowed end.
    pub async fn change_policy(
        &self,
        wanted: &WorkspaceRef,
        change: &PolicyChange,
    ) -> Result<WorkspaceInfo, OpError> {
        let edit = |workspace: &Workspace, _: &Registry| {
            let policy = change.apply_to(&workspace.network.policy)?;
            policy.check_length()?;
            self.shared().network.set_policy(&workspace.id, &policy);
            Ok(NetworkInfo { policy, ..workspace.network.clone() })
        };
        let undo = |id: &WorkspaceId, before: &NetworkInfo| {
            self.shared().network.set_policy(id, &before.policy);
        };
        self.edit_network(wanted, edit, undo).await
    }

    /// Forwards a port of the host's loopback to a port of a workspace. If `host_port` is `None`, a free one is taken.
    pub async fn forward_port(
        &self,
        wanted: &WorkspaceRef,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<(WorkspaceId, PortForward), OpError> {
        if let Some(port) = host_port.filter(|port| self.own_ports().contains(port)) {
            return Err(OpError::OwnPort { port });
        }
        let edit = |workspace: &Workspace, registry: &Registry| {
            let name = || workspace.name.clone();
            let others = workspace.network.port_forwards.iter();
            if others.filter(|forward| forward.guest_port != guest_port).count() >= MAX_FORWARDS {
                return Err(OpError::TooManyForwards { name: name() });
            }
            let mut avoid = registry.forwarded_ports(&workspace.id);
            avoid.extend(self.own_ports());
            let added = self.shared().network.forward(&workspace.id, guest_port, host_port, &avoid);
            let added = added.ok_or_else(|| OpError::Busy { name: name() })?;
            let added = added.map_err(|source| OpError::Forward { name: name(), guest_port, source })?;
            let mut network = workspace.network.clone();
            // Replaces a forward whose port was not available after a restart.
            network.port_forwards.retain(|forward| forward.guest_port != guest_port);
            network.port_forwards.push(added);
            Ok(network)
        };
        let undo = |id: &WorkspaceId, _before: &NetworkInfo| {
            drop(self.shared().network.end_forward(id, guest_port));
        };
        let info = self.edit_network(wanted, edit, undo).await?;
        let added = info.network.port_forwards.iter().find(|forward| forward.guest_port == guest_port);
        let added = added.copied().ok_or(OpError::Busy { name: info.name })?;
        Ok((info.id, added))
    }

    /// Ends a forward and the connections through it.
    pub async fn end_forward(
        &self,
        wanted: &WorkspaceRef,
        guest_port: u16,
    ) -> Result<WorkspaceInfo, OpError> {
        let mut ending = None;
        let edit = |workspace: &Workspace, _: &Registry| {
            let mut network = workspace.network.clone();
            let known: Vec<_> = network.port_forwards.iter().map(|forward| forward.guest_port).collect();
            if !known.contains(&guest_port) {
                return Err(OpError::NoForward { name: workspace.name.clone(), guest_port, known });
            }
            network.port_forwards.retain(|forward| forward.guest_port != guest_port);
            ending = self.shared().network.end_forward(&workspace.id, guest_port);
            Ok(network)
        };
        let undo = |id: &WorkspaceId, before: &NetworkInfo| {
            let ended = before.port_forwards.iter().find(|forward| forward.guest_port == guest_port);
            // Another process may have taken the port meanwhile; the ledger keeps the forward for the next start.
            let again = |ended: &PortForward| {
                self.shared().network.forward(id, guest_port, Some(ended.host_port), &BTreeSet::new())
            };
            let _ = ended.and_then(again);
        };
        let info = self.edit_network(wanted, edit, undo).await?;
        if let Some(ending) = ending {
            ending.ended().await;
        }
        Ok(info)
    }

    /// The flows that a workspace opened or was refused: the last records, and a receiver of further ones.
    pub(crate) fn network_log(&self, wanted: &WorkspaceRef, count: usize) -> Result<FollowedLog, OpError> {
        let _call = self.begin_call();
        let workspace = self.owned(wanted)?;
        let log = self.shared().network.log(&workspace.id).ok_or(OpError::Busy { name: workspace.name })?;
        Ok(log.tail_and_follow(count))
    }

    /// Ports on which agentiso itself listens, or may listen.
    fn own_ports(&self) -> [u16; 2] {
        let config = &self.shared().config;
        [config.dashboard.port, config.mcp_bridge.port]
    }

    /// Makes the edit and its effect on the network under one lock. If it cannot be saved, both are undone.
    async fn edit_network(
        &self,
        wanted: &WorkspaceRef,
        edit: impl FnOnce(&Workspace, &Registry) -> Result<NetworkInfo, OpError>,
        undo: impl FnOnce(&WorkspaceId, &NetworkInfo),
    ) -> Result<WorkspaceInfo, OpError> {
        let _call = self.begin_call();
        self.refuse_when_closing()?;
        let before = self.shared().change(|registry| {
            let before = registry.find_owned(wanted, self.id(), self.kind())?.clone();
            let network = edit(&before, registry)?;
            registry.update(&before.id, |workspace| workspace.network = network);
            Ok::<_, OpError>(before)
        })?;
        if let Err(error) = self.shared().save().await {
            undo(&before.id, &before.network);
            self.shared().update(&before.id, |workspace| workspace.network = before.network.clone());
            return Err(OpError::Ledger(error));
        }
        self.info_of(&before)
    }
}
