//! A VM's connection to the bridge, held by the daemon while the workspace exists.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;

use agentiso_core::network::NetworkPolicy;
use futures::FutureExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::hub::Hub;
use super::relay::Ends;
use super::vm::Vm;
use crate::flow::account::Account;
use crate::flow::account::End;
use crate::flow::budget::Budget;
use crate::flow::forward::{Forwards, Inbound, NOT_RUNNING};
use crate::flow::limits::CONNECT_DEADLINE;
use crate::flow::{Ending, Forward, ForwardError};
use crate::policy::Transport;

/// Dropping it takes the VM off the bridge: its rules, flows, forwards and TAP device are removed.
#[derive(Debug)]
pub struct Port {
    vm: Arc<Vm>,
    hub: Arc<Hub>,
    forwards: Forwards,
}

impl Port {
    pub(crate) fn new(vm: Arc<Vm>, hub: Arc<Hub>) -> Self {
        Self { vm, hub, forwards: Forwards::default() }
    }

    /// Changes the policy. Open flows that are no longer allowed end.
    pub fn set_policy(&self, policy: NetworkPolicy) {
        self.vm.guard.set_policy(policy);
        self.hub.changed(&self.vm);
    }

    /// Changes the host name that other VMs find it by.
    pub fn set_name(&self, name: &str) {
        self.vm.set_name(name);
    }

    /// VMs that share a group reach each other whatever their policies say about other VMs.
    pub fn set_groups(&self, groups: BTreeSet<String>) {
        self.vm.set_groups(groups);
        self.hub.changed(&self.vm);
    }

    /// Listens on the host's loopback for connections to a port of the guest. Without a given host port, a free one is
    /// taken, but none in `avoid`: these belong to others even if nothing listens there at present.
    pub fn add_forward(
        &self,
        guest_port: u16,
        host_port: Option<u16>,
        avoid: &BTreeSet<u16>,
    ) -> Result<Forward, ForwardError> {
        let _runtime = self.vm.runtime.enter();
        self.forwards.add(&self.vm, guest_port, host_port, avoid)
    }

    /// Ends a forward and the connections that came through it.
    pub fn remove_forward(&self, guest_port: u16) -> Result<Ending, ForwardError> {
        self.forwards.remove(guest_port)
    }

    /// Bytes that the buffers of its connections hold, and the most they may hold.
    pub fn buffered(&self) -> (usize, usize) {
        (self.vm.budget.used(), Budget::most(self.hub.settings.limits.flows))
    }

    /// Call it before a VM starts to use this attachment.
    pub fn occupy(&self) {
        self.vm.occupy();
    }

    /// Call it when the VM has ended for good. Its connections are cut, and new connections to it are refused until
    /// [`occupy`](Self::occupy). When the future completes, nothing of it is left.
    pub fn vacate(&self) -> impl Future<Output = ()> + Send + 'static {
        let (vm, hub) = (self.vm.clone(), self.hub.clone());
        async move {
            vm.clone().vacate().await;
            hub.end_flows_of(&vm);
        }
    }

    /// Takes the VM off the bridge and waits until its tasks have ended, but not for ever.
    pub async fn detach(self) {
        self.vacate().await;
        drop(self);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.vm.ended.cancel();
        self.vm.tasks.close();
        self.hub.leave(&self.vm);
    }
}

/// A client whose server has not answered. Dropping it resets the connection: an orderly end would look like an empty
/// answer.
struct Unanswered(Option<TcpStream>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(client) = &self.0 {
            let _ = client.set_zero_linger();
        }
    }
}

impl Inbound for Vm {
    fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Carries a connection from the host into the guest, from the gateway's address. If that is not possible, it is
    /// reset.
    fn open_inbound(
        self: &Arc<Self>,
        host: TcpStream,
        client: SocketAddr,
        guest_port: u16,
        stop: &CancellationToken,
    ) {
        let SocketAddr::V4(client) = client else { return };
        if self.is_vacant() {
            let _ = host.set_zero_linger();
            return self.refused(Transport::Tcp, Some(guest_port), client, None, NOT_RUNNING.to_owned());
        }
        let Ok(permit) = self.flows.clone().try_acquire_owned() else {
            let message = "the VM has reached its limit of connections".to_owned();
            return self.refused(Transport::Tcp, Some(guest_port), client, None, message);
        };
        let guest = SocketAddrV4::new(self.identity.address, guest_port);
        let mut account =
            Account::opened(&self.log, Transport::Tcp, guest_port, client, "port_forward", None)
                .if_not_opened(format!("nothing listens on port {guest_port} in the guest"));
        let carry = stop.clone().run_until_cancelled_owned(async move {
            let mut client = Unanswered(Some(host));
            let connected = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(guest)).await;
            let Ok(Ok(inside)) = connected else {
                account.set_end(&End::NotOpened);
                // Before the client is reset, so that the reason is already in the log.
                return drop(account);
            };
            let Some(host) = client.0.take() else { return };
            // It only affects how soon small pieces are sent.
            let _ = host.set_nodelay(true);
            let _ = inside.set_nodelay(true);
            let mut ends = Ends { guest: inside, host, finished: false };
            match tokio::io::copy_bidirectional(&mut ends.host, &mut ends.guest).await {
                // "Up" is from the guest, as everywhere.
                Ok((down, up)) => {
                    account.up = up;
                    account.down = down;
                    ends.finished = true;
                }
                Err(_) => account.set_end(&End::HostReset),
            }
            drop((account, permit));
        });
        self.spawn(carry.map(drop));
    }
}
