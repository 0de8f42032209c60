//! A VM's connection to the gateway, held by whoever runs the VM.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use tokio::runtime::Handle;

use super::counters::Counted;
use super::forward::{Ending, Forward, ForwardError, Forwards};
use super::seat::Seat;
use super::vm::Vm;
use crate::budget::Budget;

/// Dropped, the VM is detached: its tasks, flows, forwards and sockets end.
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

    pub fn seat(&self) -> &Seat {
        &self.vm.seat
    }

    /// Listens on the host's loopback for connections to a port of the guest. Without a port of the host, a free
    /// one is taken.
    pub fn add_forward(&self, guest_port: u16, host_port: Option<u16>) -> Result<Forward, ForwardError> {
        self.add_forward_avoiding(guest_port, host_port, &BTreeSet::new())
    }

    /// The same, with ports of the host that are somebody else's, whether they listen there now or not.
    pub fn add_forward_avoiding(
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

    /// Has other VMs find it by another host name.
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

    /// Bytes that the buffers of its connections have, and may have at most.
    pub fn buffered(&self) -> (usize, usize) {
        (self.vm.budget.used(), Budget::most(self.vm.settings.limits.flows))
    }

    /// A machine is about to have the seat.
    pub fn occupy(&self) {
        self.vm.occupy();
    }

    /// The machine is gone for good, and not only its cable: every connection that it had is cut, whoever is at the other
    /// end is told, and who connects to it is refused until [`occupy`](Self::occupy). Nothing is left for the next
    /// machine when this has come to its end.
    pub fn vacate(&self) -> impl Future<Output = ()> + Send + 'static {
        self.vm.clone().vacate()
    }

    /// Detaches the VM and waits until nothing of it is left.
    pub async fn detach(self) {
        let tasks = self.vm.tasks.clone();
        drop(self);
        tasks.wait().await;
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.vm.switch.part(&self.vm);
        self.vm.switch.remove(self.vm.seat.address);
        self.vm.ended.cancel();
        self.vm.tasks.close();
    }
}
