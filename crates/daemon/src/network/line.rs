//! What a machine's card is connected to, whichever backend it is.

use std::collections::BTreeSet;

use agentiso_core::network::NetworkPolicy;
use agentiso_net::bridge::Port;
use agentiso_net::gateway::{Attachment, Ending, Forward, ForwardError};
use agentiso_net::rules::Guard;
use futures::future::BoxFuture;

use super::lane::Lane;
use super::socket::Socket;

/// Dropped, the machine is disconnected, and everything that was connected to it.
#[derive(Debug)]
pub(super) enum Line {
    Gateway { attachment: Attachment, guard: Guard, socket: Socket, _lane: Lane },
    Bridge { port: Port, _lane: Lane },
}

impl Line {
    /// Returns when what was connected has ended and is in the log.
    pub(super) async fn disconnect(self) {
        match self {
            Self::Gateway { attachment, .. } => attachment.detach().await,
            Self::Bridge { port, .. } => port.detach().await,
        }
    }

    /// The workspace is gone: nothing of its card's connection is left on the host.
    pub(super) fn retire(self) {
        if let Self::Gateway { attachment, socket, .. } = self {
            drop(attachment);
            socket.retire();
        }
    }

    pub(super) fn is_gateway(&self) -> bool {
        matches!(self, Self::Gateway { .. })
    }

    /// A machine is about to be connected.
    pub(super) fn occupy(&self) {
        match self {
            Self::Gateway { attachment, .. } => attachment.occupy(),
            Self::Bridge { port, .. } => port.occupy(),
        }
    }

    /// The machine is gone: what it had open is cut, and nothing is left for the next when this has come to its end.
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

    /// What is open and no longer allowed ends.
    pub(super) fn set_policy(&self, policy: &NetworkPolicy) {
        match self {
            Self::Gateway { guard, .. } => guard.set_policy(policy.clone()),
            Self::Bridge { port, .. } => port.set_policy(policy.clone()),
        }
    }

    /// Machines that share a group reach each other whatever their policies say about other machines.
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
            Self::Gateway { attachment, .. } => attachment.add_forward_avoiding(guest_port, host_port, avoid),
            Self::Bridge { port, .. } => port.add_forward_avoiding(guest_port, host_port, avoid),
        }
    }

    pub(super) fn remove_forward(&self, guest_port: u16) -> Result<Ending, ForwardError> {
        match self {
            Self::Gateway { attachment, .. } => attachment.remove_forward(guest_port),
            Self::Bridge { port, .. } => port.remove_forward(guest_port),
        }
    }
}
