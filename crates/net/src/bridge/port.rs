//! A machine's connection to the bridge, held by whoever runs the machine.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;

use agentiso_core::network::NetworkPolicy;
use futures::FutureExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::hub::Hub;
use super::place::Place;
use super::relay::Ends;
use crate::budget::Budget;
use crate::gateway::account::Account;
use crate::gateway::flow::End;
use crate::gateway::forward::{Forwards, Inbound, NOBODY};
use crate::gateway::settings::CONNECT_DEADLINE;
use crate::gateway::{Ending, Forward, ForwardError};
use crate::rules::Transport;

/// Dropped, the machine is taken off the bridge: its rules, flows, forwards and its device go.
#[derive(Debug)]
pub struct Port {
    place: Arc<Place>,
    hub: Arc<Hub>,
    forwards: Forwards,
}

impl Port {
    pub(crate) fn new(place: Arc<Place>, hub: Arc<Hub>) -> Self {
        Self { place, hub, forwards: Forwards::default() }
    }

    /// What the machine may reach from here on. What is open and no longer allowed ends.
    pub fn set_policy(&self, policy: NetworkPolicy) {
        self.place.guard.set_policy(policy);
        self.hub.changed(&self.place);
    }

    /// Has other machines find it by another host name.
    pub fn set_name(&self, name: &str) {
        self.place.set_name(name);
    }

    /// Machines that share a group reach each other whatever their policies say about other machines.
    pub fn set_groups(&self, groups: BTreeSet<String>) {
        self.place.set_groups(groups);
        self.hub.changed(&self.place);
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
        let _runtime = self.place.runtime.enter();
        self.forwards.add(&self.place, guest_port, host_port, avoid)
    }

    /// Ends a forward and the connections that came through it.
    pub fn remove_forward(&self, guest_port: u16) -> Result<Ending, ForwardError> {
        self.forwards.remove(guest_port)
    }

    /// Bytes that the buffers of its connections have, and may have at most.
    pub fn buffered(&self) -> (usize, usize) {
        (self.place.budget.used(), Budget::most(self.hub.settings.limits.flows))
    }

    /// A machine is about to have the place.
    pub fn occupy(&self) {
        self.place.occupy();
    }

    /// The machine is gone for good: what is carried for it is cut, and who connects to it is refused until
    /// [`occupy`](Self::occupy). Nothing of it is left when this has come to its end.
    pub fn vacate(&self) -> impl Future<Output = ()> + Send + 'static {
        let (place, hub) = (self.place.clone(), self.hub.clone());
        async move {
            place.clone().vacate().await;
            hub.part(&place);
        }
    }

    /// Takes the machine off the bridge and waits until nothing of it is left, but not for ever.
    pub async fn detach(self) {
        self.vacate().await;
        drop(self);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.place.ended.cancel();
        self.place.tasks.close();
        self.hub.leave(&self.place);
    }
}

/// A client whose server has not answered. Dropped, it is reset: a connection that just ends would look like an empty
/// answer.
struct Unanswered(Option<TcpStream>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(client) = &self.0 {
            let _ = client.set_zero_linger();
        }
    }
}

impl Inbound for Place {
    fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Carries a connection of the host into the guest, from the gateway's address. What cannot be carried is reset.
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
            return self.refused(Transport::Tcp, Some(guest_port), client, None, NOBODY.to_owned());
        }
        let Ok(permit) = self.flows.clone().try_acquire_owned() else {
            let message = "the VM has as many connections as it may have".to_owned();
            return self.refused(Transport::Tcp, Some(guest_port), client, None, message);
        };
        let guest = SocketAddrV4::new(self.seat.address, guest_port);
        let mut account =
            Account::opened(&self.log, Transport::Tcp, guest_port, client, "port_forward", None)
                .if_not_opened(format!("nothing listens on port {guest_port} in the guest"));
        let carry = stop.clone().run_until_cancelled_owned(async move {
            let mut client = Unanswered(Some(host));
            let connected = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(guest)).await;
            let Ok(Ok(inside)) = connected else {
                account.ends(&End::NotOpened);
                // Before the client is told, so that it finds the reason in the log.
                return drop(account);
            };
            let Some(host) = client.0.take() else { return };
            // Only how soon small pieces are sent depends on it.
            let _ = host.set_nodelay(true);
            let _ = inside.set_nodelay(true);
            let mut ends = Ends { guest: inside, host, finished: false };
            match tokio::io::copy_bidirectional(&mut ends.host, &mut ends.guest).await {
                // Up is from the guest, here as everywhere.
                Ok((down, up)) => {
                    account.up = up;
                    account.down = down;
                    ends.finished = true;
                }
                Err(_) => account.ends(&End::HostReset),
            }
            drop((account, permit));
        });
        self.spawn(carry.map(drop));
    }
}
