//! The connection of a VM's network card, at either backend.

use std::collections::BTreeSet;

use agentiso_core::network::NetworkPolicy;
use agentiso_net::bridge::Port;
use agentiso_net::flow::{Ending, Forward, ForwardError};
use agentiso_net::gateway::Attachment;
use agentiso_net::policy::Guard;
use futures::future::BoxFuture;

use super::lane::Lane;
use super::socket::Socket;

/// Dropping it disconnects the VM and ends everything that was connected to it.
#[derive(Debug)]
pub(super) enum Connection {
    Gateway { attachment: Attachment, guard: Guard, socket: Socket, _lane: Lane },
    Bridge { port: Port, _lane: Lane },
}

impl Connection {
    /// Returns when all flows have ended and are in the log.
    pub(super) async fn disconnect(self) {
        match self {
            Self::Gateway { attachment, .. } => attachment.detach().await,
            Self::Bridge { port, .. } => port.detach().await,
        }
    }

    /// Removes everything of the connection from the host, because the workspace is gone.
    pub(super) fn retire(self) {
        if let Self::Gateway { attachment, socket, .. } = self {
            drop(attachment);
            socket.retire();
        }
    }

    pub(super) fn is_gateway(&self) -> bool {
        matches!(self, Self::Gateway { .. })
    }

    /// Called when a VM is about to be connected.
    pub(super) fn occupy(&self) {
        match self {
            Self::Gateway { attachment, .. } => attachment.occupy(),
            Self::Bridge { port, .. } => port.occupy(),
        }
    }

    /// Called when the VM is gone: its flows are cut, and nothing is left for the next VM when the future
    /// completes.
    pub(super) fn vacate(&self) -> BoxFuture<'static, ()> {
        match self {
            Self::Gateway { attachment, .. } => Box::pin(attachment.vacate()),
            Self::Bridge { port, .. } => Box::pin(port.vacate()),
        }
    }

    pub(super) fn set_name(&self, hostname: &str) {
        match self {
            Self::Gateway { attachment, .. } => attachment.set_name(hostname),
            Self::Bridge { port, .. } => port.set_name(hostname),
        }
    }

    /// Flows that are no longer allowed end.
    pub(super) fn set_policy(&self, policy: &NetworkPolicy) {
        match self {
            Self::Gateway { guard, .. } => guard.set_policy(policy.clone()),
            Self::Bridge { port, .. } => port.set_policy(policy.clone()),
        }
    }

    /// VMs that share a group reach each other whatever their policies say about other VMs.
    pub(super) fn set_groups(&self, groups: BTreeSet<String>) {
        match self {
            Self::Gateway { attachment, .. } => attachment.set_groups(groups),
            Self::Bridge { port, .. } => port.set_groups(groups),
        }
    }

    pub(super) fn add_forward(
        &self,
        guest_port: u16,
        host_port: Option<u16>,
        avoid: &BTreeSet<u16>,
    ) -> Result<Forward, ForwardError> {
        match self {
            Self::Gateway { attachment, .. } => attachment.add_forward(guest_port, host_port, avoid),
            Self::Bridge { port, .. } => port.add_forward(guest_port, host_port, avoid),
        }
    }

    pub(super) fn remove_forward(&self, guest_port: u16) -> Result<Ending, ForwardError> {
        match self {
            Self::Gateway { attachment, .. } => attachment.remove_forward(guest_port),
            Self::Bridge { port, .. } => port.remove_forward(guest_port),
        }
    }
}
