//! Flow accounting of the hub: reads the counts of a VM into its log, and ends flows that are no longer allowed.

use std::io;
use std::net::SocketAddrV4;
use std::sync::{MutexGuard, PoisonError};

use tokio::time::Instant;

use super::counts::Counts;
use super::flow::Flow;
use super::flow_table::Permission;
use crate::bridge::hub::Hub;
use crate::bridge::nft::Direction;
use crate::bridge::vm::Vm;
use crate::policy::{Transport, Verdict};

impl Hub {
    /// `None` if the kernel cannot count.
    fn counts(&self) -> Option<MutexGuard<'_, Counts>> {
        self.counts.as_ref().map(|counts| counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts to count for a VM.
    pub(in crate::bridge) fn start_counting(&self, vm: &Vm) {
        let added = self.counts().map(|mut counts| counts.add(vm.short(), vm.identity.address));
        if let Some(Err(error)) = added {
            tracing::warn!(device = vm.tap, %error, "cannot count what the kernel forwards for it; its log lacks those flows");
        }
    }

    /// Stops to count for a VM. Its open flows are closed in the log.
    pub(in crate::bridge) fn stop_counting(&self, vm: &Vm) {
        self.end_flows_of(vm);
        let removed = self.counts().map(|mut counts| counts.remove(vm.short(), vm.identity.address));
        if let Some(Err(error)) = removed {
            tracing::debug!(device = vm.tap, %error, "cannot remove its counts");
        }
    }

    /// Updates the log from the kernel's counts. Returns whether the VM has flows left.
    pub(super) fn look(&self, vm: &Vm) -> bool {
        self.counts().is_some_and(|mut counts| self.look_with(&mut counts, vm))
    }

    fn look_with(&self, counts: &mut Counts, vm: &Vm) -> bool {
        let mut flow_table = vm.flow_table();
        if let Err(error) = self.try_look(counts, vm, &mut flow_table) {
            tracing::debug!(device = vm.tap, %error, "cannot read its counts");
        }
        !flow_table.is_empty()
    }

    fn try_look(&self, counts: &mut Counts, vm: &Vm, flow_table: &mut super::FlowTable) -> io::Result<()> {
        // Answers first: the packets that they answer are then among those counted next.
        for direction in [Direction::Down, Direction::Up] {
            let counted = counts.read(vm.short(), direction)?;
            let now = Instant::now();
            counted.into_iter().for_each(|count| flow_table.see(direction, count, now));
        }
        let done = flow_table.settle(Instant::now(), &vm.log, |flow| self.permission(vm, flow));
        counts.forget(vm.short(), &done);
        Ok(())
    }

    /// The rule that allows a flow of this VM.
    fn permission(&self, vm: &Vm, flow: &Flow) -> Permission {
        /// The policy has changed between the packet and its record.
        const EARLIER: &str = "an earlier policy";
        let Flow { transport, remote, .. } = *flow;
        if self.is_neighbour(*remote.ip()) {
            let name = self.vm_at(*remote.ip()).map(|other| other.name());
            return Permission { rule: "allow_inter_vm".to_owned(), name };
        }
        match vm.guard.judge(transport, remote) {
            Verdict::Allowed { rule, name } => Permission { rule, name },
            Verdict::Refused(_) => Permission { rule: EARLIER.to_owned(), name: None },
        }
    }

    /// The reason that a flow is not allowed, if any, in the same words as the gateway's. `resolved` is the name it was
    /// opened by.
    pub(in crate::bridge) fn refusal(
        &self,
        vm: &Vm,
        transport: Transport,
        to: SocketAddrV4,
        resolved: Option<&str>,
    ) -> Option<String> {
        if !self.is_neighbour(*to.ip()) {
            return match vm.guard.rejudge(transport, to, resolved) {
                Verdict::Refused(refusal) => Some(refusal.message),
                Verdict::Allowed { .. } => None,
            };
        }
        let Some(other) = self.vm_at(*to.ip()).filter(|other| vm.may_reach(other)) else {
            let own = vm.guard.policy().allow_inter_vm;
            let who = if own { "the other VM" } else { "this VM" };
            return Some(format!("{who} has no allow_inter_vm, and the two are not in the same team"));
        };
        let port = to.port();
        let accepts = transport == Transport::Icmp || other.guard.policy().accepts_port(port);
        (!accepts).then(|| format!("port {port} is not among the other VM's allowed_ports"))
    }

    /// Ends the flows of a VM, and of others to it, that its changed rules no longer allow.
    pub(in crate::bridge) fn review(&self, vm: &Vm) {
        self.end_flows_if(vm, |opener, flow, resolved| {
            let Flow { transport, remote, .. } = *flow;
            self.refusal(opener, transport, remote, resolved)
        });
    }

    /// Ends all flows of a VM that is gone, and removes them from connection tracking: the next VM at this address must
    /// not receive their packets.
    pub(in crate::bridge) fn end_flows_of(&self, vm: &Vm) {
        let gone = vm.identity.address;
        let cut = self.end_flows_if(vm, |opener, _, _| {
            let is_own = opener.identity.address == gone;
            Some(if is_own { "the VM is gone" } else { "the other VM is gone" }.to_owned())
        });
        if let Some(mut counts) = self.counts() {
            cut.iter().for_each(|(opener, flows)| counts.end(*opener, flows));
        }
    }

    /// Ends the flows of a VM, and of others to it, for which `reason` returns one. Returns them by the VM that opened
    /// them.
    fn end_flows_if(
        &self,
        vm: &Vm,
        reason: impl Fn(&Vm, &Flow, Option<&str>) -> Option<String>,
    ) -> Vec<(std::net::Ipv4Addr, Vec<Flow>)> {
        let Some(mut counts) = self.counts() else { return Vec::new() };
        let here = vm.identity.address;
        let mut ended = Vec::new();
        let others = self.all();
        let others = others.iter().map(|other| &**other).filter(|other| other.identity.address != here);
        for opener in std::iter::once(vm).chain(others) {
            let is_own = opener.identity.address == here;
            let concerns = |flow: &Flow| is_own || *flow.remote.ip() == here;
            if is_own || opener.may_reach(vm) || opener.flow_table().concerns(here) {
                self.look_with(&mut counts, opener);
            }
            let (flows, done) = opener
                .flow_table()
                .cut(|flow, resolved| concerns(flow).then(|| reason(opener, flow, resolved)).flatten());
            counts.forget(opener.short(), &done);
            if !flows.is_empty() {
                ended.push((opener.identity.address, flows));
            }
        }
        ended
    }
}
