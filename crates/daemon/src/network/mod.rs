//! The network of all workspaces, with one attachment for each of them.
//!
//! An attachment is held for as long as its workspace exists, whether a VM runs or not: forwards listen all the
//! time, and the VM's network card connects whenever there is a VM. Flows of a VM end with it. After a restart of
//! the daemon, cards at the gateway reconnect by themselves, and those at the bridge were never disconnected. An
//! attachment or a port of the host that is not available is reported as a [`NetworkTrouble`] of the workspace and
//! tried again when the workspace is started.

mod backend;
mod connection;
mod lane;
mod opening;
mod socket;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentiso_core::address::mac_for;
use agentiso_core::config::{Config, Paths};
use agentiso_core::ids::WorkspaceId;
use agentiso_core::network::{NetworkPolicy, PolicyChange, PolicyProblems};
use agentiso_net::flow::log::FlowLog;
use agentiso_net::flow::{Ending, Forward, ForwardError, NetIdentity, Service};
use agentiso_net::policy::{Guard, HostAddresses};

use crate::info::{NetworkInfo, NetworkTrouble, PortForward, VmIdentity};
pub(crate) use backend::AttachmentError;
use backend::Backend;
pub use backend::NetworkError;
use connection::Connection;
pub(crate) use opening::Opening;

#[derive(Debug)]
pub(crate) struct Network {
    backend: Backend,
    host: HostAddresses,
    address: Ipv4Addr,
    paths: Paths,
    attachments: Mutex<Attachments>,
}

#[derive(Debug, Default)]
struct Attachments {
    attached: HashMap<WorkspaceId, Attached>,
    /// The reasons why workspaces have no attachment.
    refused: HashMap<WorkspaceId, String>,
}

/// An attachment that is held.
#[derive(Debug)]
struct Attached {
    connection: Connection,
    log: FlowLog,
    /// The policy of the ledger, without what is open for one call only.
    policy: NetworkPolicy,
    opened: Option<PolicyChange>,
    /// The groups whose members may reach each other.
    groups: BTreeSet<String>,
    /// The reasons why forwards do not listen, by the port of the guest.
    failed_forwards: BTreeMap<u16, String>,
}

impl Attached {
    /// Applies the policy, together with what is open for one call.
    fn apply(&self) -> Result<(), PolicyProblems> {
        match &self.opened {
            None => self.connection.set_policy(&self.policy),
            Some(opened) => self.connection.set_policy(&opened.apply_to(&self.policy)?),
        }
        Ok(())
    }

    fn set_policy(&mut self, policy: &NetworkPolicy) {
        self.policy.clone_from(policy);
        if let Err(problems) = self.apply() {
            // An opening that does not fit the new policy is closed.
            tracing::warn!(%problems, "the access that one call was given does not fit the new policy and is closed");
            self.opened = None;
            self.connection.set_policy(policy);
        }
    }

    /// Listens for the forwards that are not listened for yet.
    fn listen(&mut self, forwards: &[PortForward]) {
        self.failed_forwards.clear();
        for PortForward { guest_port, host_port } in forwards {
            match self.connection.add_forward(*guest_port, Some(*host_port), &BTreeSet::new()) {
                Ok(_) | Err(ForwardError::Exists { .. }) => {}
                Err(error) => {
                    tracing::error!(guest_port, %error, "cannot forward a port");
                    self.failed_forwards.insert(*guest_port, error.to_string());
                }
            }
        }
    }
}

impl Network {
    /// Takes over or removes what an earlier daemon left. Guests reach the services through the network. Must be called within the runtime.
    pub(crate) fn open(config: &Config, services: Vec<Arc<dyn Service>>) -> Result<Self, NetworkError> {
        Ok(Self {
            backend: Backend::open(config, services)?,
            host: HostAddresses::of_this_host()?,
            address: config.subnet().gateway,
            paths: config.paths.clone(),
            attachments: Mutex::default(),
        })
    }

    fn attachments(&self) -> MutexGuard<'_, Attachments> {
        // Every change is one insert or remove.
        self.attachments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a workspace before its VM boots. An existing attachment gets this name and these rules, and ports
    /// that were in use are tried again.
    pub(crate) fn attach(
        &self,
        identity: VmIdentity,
        hostname: &str,
        network: &NetworkInfo,
    ) -> Result<(), AttachmentError> {
        let mut attachments = self.attachments();
        if let Some(attached) = attachments.attached.get_mut(&identity.id) {
            attached.connection.set_name(hostname);
            attached.set_policy(&network.policy);
            attached.listen(&network.port_forwards);
            return Ok(());
        }
        match self.connect(identity, hostname, network) {
            Ok(attached) => {
                attachments.refused.remove(&identity.id);
                attachments.attached.insert(identity.id, attached);
                Ok(())
            }
            Err(error) => {
                attachments.refused.insert(identity.id, error.to_string());
                Err(error)
            }
        }
    }

    fn connect(
        &self,
        identity: VmIdentity,
        hostname: &str,
        network: &NetworkInfo,
    ) -> Result<Attached, AttachmentError> {
        let net_identity =
            NetIdentity { name: hostname.to_owned(), mac: mac_for(&identity.id), address: identity.address };
        let guard = Guard::new(network.policy.clone(), self.host.clone(), self.address);
        let log = FlowLog::kept_in(&self.paths.workspace_data(&identity.id));
        let connection = self.backend.connect(&identity.id, net_identity, guard, log.clone())?;
        let (policy, opened) = (network.policy.clone(), None);
        let mut attached = Attached {
            connection,
            log,
            policy,
            opened,
            groups: BTreeSet::new(),
            failed_forwards: BTreeMap::new(),
        };
        attached.listen(&network.port_forwards);
        Ok(attached)
    }

    /// Called when a VM boots at the attachment.
    pub(crate) fn occupy(&self, id: &WorkspaceId) {
        let mut attachments = self.attachments();
        if let Some(attached) = attachments.attached.get(id) {
            attached.connection.occupy();
            attachments.refused.remove(id);
        }
    }

    /// Called when a VM of an earlier daemon was reattached. A VM that is confined by Landlock cannot connect to
    /// this daemon.
    pub(crate) fn reattached(&self, id: &WorkspaceId, pid: i32) {
        let mut attachments = self.attachments();
        let at_gateway =
            attachments.attached.get(id).is_some_and(|attached| attached.connection.is_gateway());
        if at_gateway && agentiso_sys::jail::of_process(pid) == Some(agentiso_sys::jail::Jail::Landlock) {
            let reason = "its network ended with an earlier daemon, because this host does not allow user namespaces; \
                          stop and start the workspace";
            attachments.refused.insert(*id, reason.to_owned());
        }
    }

    /// Called when the VM is gone. Connected peers are told at once, later connections are refused, and the next VM
    /// inherits nothing.
    pub(crate) async fn vacate(&self, id: &WorkspaceId) {
        let vacated = self.attachments().attached.get(id).map(|attached| attached.connection.vacate());
        if let Some(vacated) = vacated {
            vacated.await;
        }
    }

    /// Removes the attachment of a workspace that is gone, with everything that was connected to it.
    pub(crate) fn detach(&self, id: &WorkspaceId) {
        let mut attachments = self.attachments();
        attachments.refused.remove(id);
        let attached = attachments.attached.remove(id);
        drop(attachments);
        if let Some(attached) = attached {
            attached.connection.retire();
        }
    }

    /// Stops writing to the log in a directory that is about to be removed.
    pub(crate) async fn leave_files(&self, id: &WorkspaceId) {
        if let Some(log) = self.log(id) {
            log.leave_files().await;
        }
    }

    /// Closes all attachments when the daemon ends. The ends of their flows are on disk when this returns.
    pub(crate) async fn close(&self) {
        let attachments = std::mem::take(&mut *self.attachments());
        for Attached { connection, log, .. } in attachments.attached.into_values() {
            connection.disconnect().await;
            log.flush().await;
        }
        self.backend.close();
    }

    /// Removes what is left of the network of strays that were removed.
    pub(crate) fn strays_are_gone(&self) {
        if let Err(error) = self.backend.sweep() {
            tracing::error!(%error, "cannot remove all network devices of VMs that are gone");
        }
    }

    /// The parts of a workspace's network that are missing although they should exist.
    pub(crate) fn trouble(&self, id: &WorkspaceId) -> NetworkTrouble {
        let attachments = self.attachments();
        let forwards =
            attachments.attached.get(id).map(|attached| attached.failed_forwards.clone()).unwrap_or_default();
        NetworkTrouble { attachment: attachments.refused.get(id).cloned(), forwards }
    }

    pub(crate) fn set_policy(&self, id: &WorkspaceId, policy: &NetworkPolicy) {
        if let Some(attached) = self.attachments().attached.get_mut(id) {
            attached.set_policy(policy);
        }
    }

    /// Allows more than the policy until the returned value is dropped. Changes of the policy apply meanwhile.
    pub(crate) fn open_for_call(
        self: &Arc<Self>,
        id: &WorkspaceId,
        change: &PolicyChange,
    ) -> Result<Opening, PolicyProblems> {
        if let Some(attached) = self.attachments().attached.get_mut(id) {
            attached.opened = Some(change.clone());
            attached.apply().inspect_err(|_| attached.opened = None)?;
        }
        Ok(Opening::new(Arc::clone(self), *id))
    }

    fn end_opening(&self, id: &WorkspaceId) {
        if let Some(attached) = self.attachments().attached.get_mut(id) {
            attached.opened = None;
            attached.connection.set_policy(&attached.policy);
        }
    }

    /// Puts a VM into these groups: flows that are no longer allowed end.
    pub(crate) fn set_groups(&self, id: &WorkspaceId, groups: BTreeSet<String>) {
        if let Some(attached) =
            self.attachments().attached.get_mut(id).filter(|attached| attached.groups != groups)
        {
            attached.connection.set_groups(groups.clone());
            attached.groups = groups;
        }
    }

    /// Adds a forward that uses none of the ports to be avoided.
    pub(crate) fn forward(
        &self,
        id: &WorkspaceId,
        guest_port: u16,
        host_port: Option<u16>,
        avoid: &BTreeSet<u16>,
    ) -> Option<Result<PortForward, ForwardError>> {
        let mut attachments = self.attachments();
        let attached = attachments.attached.get_mut(id)?;
        let added = attached.connection.add_forward(guest_port, host_port, avoid);
        if added.is_ok() {
            attached.failed_forwards.remove(&guest_port);
        }
        Some(added.map(port_forward))
    }

    /// Ends a forward. A forward whose port was not available does not listen, so there is nothing to end.
    pub(crate) fn end_forward(&self, id: &WorkspaceId, guest_port: u16) -> Option<Ending> {
        let mut attachments = self.attachments();
        let attached = attachments.attached.get_mut(id)?;
        attached.failed_forwards.remove(&guest_port);
        attached.connection.remove_forward(guest_port).ok()
    }

    /// The log of the flows that its VM opened and of those that were refused.
    pub(crate) fn log(&self, id: &WorkspaceId) -> Option<FlowLog> {
        self.attachments().attached.get(id).map(|attached| attached.log.clone())
    }
}

fn port_forward(forward: Forward) -> PortForward {
    PortForward { host_port: forward.host_port, guest_port: forward.guest_port }
}
