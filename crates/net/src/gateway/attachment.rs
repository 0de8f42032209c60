//! A VM's connection to the gateway, held by the daemon while the workspace exists.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use tokio::runtime::Handle;

use super::counters::Counted;
use super::vm::Vm;
use crate::flow::NetIdentity;
use crate::flow::budget::Budget;
use crate::flow::forward::{Ending, Forward, ForwardError, Forwards};

/// Dropping it detaches the VM: its tasks, flows, forwards and sockets end.
#[derive(Debug)]
pub struct Attachment {
    vm: Arc<Vm>,
    forwards: Forwards,
    runtime: Handle,
}

impl Attachment {
    pub(crate) fn new(vm: Arc<Vm>, runtime: Handle) -> Self {
        Self { vm, forwards: Forwards::default(), runtime }
    }

    pub fn identity(&self) -> &NetIdentity {
        &self.vm.identity
    }

    /// Listens on the host's loopback for connections to a port of the guest. Without a given host port, a free one is
    /// taken, but none in `avoid`: these belong to others even if nothing listens there at present.
    pub fn add_forward(
        &self,
        guest_port: u16,
        host_port: Option<u16>,
        avoid: &BTreeSet<u16>,
    ) -> Result<Forward, ForwardError> {
        let _runtime = self.runtime.enter();
        self.forwards.add(&self.vm, guest_port, host_port, avoid)
    }

    /// Ends a forward and the connections that came through it.
    pub fn remove_forward(&self, guest_port: u16) -> Result<Ending, ForwardError> {
        self.forwards.remove(guest_port)
    }

    pub fn forwards(&self) -> Vec<Forward> {
        self.forwards.list()
    }

    /// Changes the host name that other VMs find it by.
    pub fn set_name(&self, name: &str) {
        self.vm.set_name(name);
    }

    /// VMs that share a group reach each other whatever their policies say about other VMs.
    pub fn set_groups(&self, groups: BTreeSet<String>) {
        *self.vm.groups.write().unwrap_or_else(PoisonError::into_inner) = groups;
        self.vm.switch.judge_again(&self.vm);
    }

    pub fn counters(&self) -> Counted {
        self.vm.counters.read()
    }

    /// TCP connections and UDP associations that are open.
    pub fn open_flows(&self) -> usize {
        self.vm.flows.len() + self.vm.associations.len()
    }

    /// Bytes that the buffers of its connections hold, and the most they may hold.
    pub fn buffered(&self) -> (usize, usize) {
        (self.vm.budget.used(), Budget::most(self.vm.settings.limits.flows))
    }

    /// Call it before a VM starts to use this attachment.
    pub fn occupy(&self) {
        self.vm.occupy();
    }

    /// Call it when the VM has ended for good, not only its socket connection. All its connections are cut, their other
    /// ends are reset, and new connections to it are refused until [`occupy`](Self::occupy). When the future completes,
    /// nothing is left for the next VM.
    pub fn vacate(&self) -> impl Future<Output = ()> + Send + 'static {
        self.vm.clone().vacate()
    }

    /// Detaches the VM and waits until all its tasks have ended.
    pub async fn detach(self) {
        let tasks = self.vm.tasks.clone();
        drop(self);
        tasks.wait().await;
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.vm.switch.end_connections_of(&self.vm);
        self.vm.switch.remove(self.vm.identity.address);
        self.vm.ended.cancel();
        self.vm.tasks.close();
    }
}
