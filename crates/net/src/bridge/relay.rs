//! TCP to the outside: the kernel brings every connection that the rules let out to our listener, which reads whom it
//! names and carries it on by a socket of the host. So names are checked as the gateway checks them, a flow ends with
//! the policy that allowed it, and the host forwards no TCP.

use std::io;
use std::net::SocketAddrV4;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{ip_original_dst, set_socket_keepalive, set_tcp_keepidle};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::climb::{BUFFER, Ear, climb, watched};
use super::hub::Hub;
use super::place::Place;
use crate::budget::Buffers;
use crate::gateway::account::Account;
use crate::gateway::flow::End;
use crate::gateway::gate::Gate;
use crate::gateway::settings::KEEP_ALIVE;
use crate::rules::Transport;

/// Until a listener that failed is asked again: too many open files, most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts what the kernel brings, until the bridge is closed.
pub(super) async fn serve(hub: Arc<Hub>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((guest, client)) => open(&hub, guest, client),
            Err(error) => {
                tracing::warn!(%error, "a guest's connection cannot be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn open(hub: &Arc<Hub>, guest: TcpStream, client: std::net::SocketAddr) {
    let Some(place) = hub.place_of(client) else { return reset(&guest) };
    // Without a target of its own it was opened to us, which the rules do not let happen.
    let (Ok(to), Ok(us)) = (ip_original_dst(&guest), guest.local_addr()) else { return reset(&guest) };
    if us == to.into() {
        return reset(&guest);
    }
    let Ok(permit) = place.flows.clone().try_acquire_owned() else {
        let limit = hub.settings.limits.flows;
        let message = format!("the VM has {limit} connections, which is its limit");
        place.refused(Transport::Tcp, Some(client.port()), to, None, message);
        return reset(&guest);
    };
    let Ok(guest) = guest.into_std() else { return };
    let (hub, carrier) = (hub.clone(), place.clone());
    place.spawn(async move {
        // Taken up anew, so that the thread that carries it is the one that the kernel wakes for it.
        if let Ok(guest) = TcpStream::from_std(guest) {
            carry(&hub, &carrier, guest, client.port(), to).await;
        }
        drop(permit);
    });
}

/// Ends a connection so that the guest does not take what has come so far for all there is.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn carry(hub: &Hub, place: &Place, guest: TcpStream, guest_port: u16, to: SocketAddrV4) {
    let refused = |message: String| place.refused(Transport::Tcp, Some(guest_port), to, None, message);
    let gate = match Gate::open(place.guard.clone(), to) {
        Ok(gate) => gate,
        Err(refusal) => {
            reset(&guest);
            return refused(refusal.message);
        }
    };
    let Ok(connecting) = place.connecting.clone().try_acquire_owned() else {
        reset(&guest);
        let limit = hub.settings.limits.connecting;
        return refused(format!("{limit} connections wait for their servers, which is the VM's limit"));
    };
    let mut buffers = match place.budget.buffers(BUFFER) {
        Ok(buffers) => buffers,
        Err(problem) => {
            reset(&guest);
            return refused(format!("there is no room for another connection: {problem}"));
        }
    };
    let mut account = Account::opened(&place.log, Transport::Tcp, guest_port, to, gate.rule(), gate.name());
    let connected = timeout(hub.settings.connect_deadline, hub.settings.dialer.connect(to)).await;
    drop(connecting);
    let host = match connected {
        Ok(Ok(host)) => host,
        Ok(Err(error)) => {
            reset(&guest);
            return account.says(match error.kind() == io::ErrorKind::ConnectionRefused {
                true => "the server refused the connection".to_owned(),
                false => format!("the server cannot be reached: {error}"),
            });
        }
        Err(_elapsed) => {
            reset(&guest);
            return account.says("the server did not answer".to_owned());
        }
    };
    let mut flow = Flow { gate, up: AtomicU64::new(0), down: AtomicU64::new(0) };
    let end = flow.run(Ends { guest, host, finished: false }, &mut buffers).await;
    if let Some(name) = flow.gate.name() {
        account.names(name);
    }
    (account.up, account.down) = (flow.up.into_inner(), flow.down.into_inner());
    account.ends(&end);
    drop(account);
    if let End::Refused(refusal) = end {
        refused(refusal.message);
    }
}

/// One connection, while it is carried.
struct Flow {
    gate: Gate,
    up: AtomicU64,
    down: AtomicU64,
}

impl Flow {
    /// Carries bytes until both sides have ended, and tells both how.
    async fn run(&mut self, mut ends: Ends, buffers: &mut Buffers) -> End {
        // How soon small pieces are sent, and how soon a machine that is gone is missed.
        let _ = ends.guest.set_nodelay(true);
        let _ = set_socket_keepalive(&ends.guest, true);
        let _ = set_tcp_keepidle(&ends.guest, KEEP_ALIVE);
        let end = self.both(&mut ends.guest, &mut ends.host, buffers).await;
        ends.finished = matches!(end, End::Finished);
        end
    }

    async fn both(&mut self, guest: &mut TcpStream, host: &mut TcpStream, buffers: &mut Buffers) -> End {
        let Self { gate, up, down } = self;
        let ear = Ear::of(gate);
        let (guest_says, guest_hears) = guest.split();
        let (host_says, host_hears) = host.split();
        let (climbing, pouring) = buffers.split();
        let mut down = pin!(pour(host_says, guest_hears, down, &ear, pouring));
        let mut host_ended = false;
        let guest = {
            let mut up = pin!(climb(gate, guest_says, host_hears, up, &ear, climbing));
            loop {
                // Refusals come from the guest's side, so it has its turn first.
                tokio::select! {
                    biased;
                    climbed = &mut up => match climbed {
                        Ok(guest) => break guest,
                        Err(end) => return end,
                    },
                    poured = &mut down, if !host_ended => match poured {
                        Ok(()) => host_ended = true,
                        Err(Side::From) => return End::HostReset,
                        Err(Side::To) => return End::GuestReset,
                    },
                }
            }
        };
        if host_ended {
            return End::Finished;
        }
        tokio::select! {
            biased;
            poured = watched(gate, &ear, down) => match poured {
                Err(refusal) => End::Refused(refusal),
                Ok(Ok(())) => End::Finished,
                Ok(Err(Side::From)) => End::HostReset,
                Ok(Err(Side::To)) => End::GuestReset,
            },
            // It said its last and then forgot the connection, while its server keeps silent.
            _ = guest.ready(Interest::ERROR) => End::GuestReset,
        }
    }
}

/// Both ends of a connection. Dropped before it has finished, both are reset, so that neither side takes what has come
/// so far for all there is.
pub(super) struct Ends {
    pub(super) guest: TcpStream,
    pub(super) host: TcpStream,
    pub(super) finished: bool,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.finished {
            reset(&self.guest);
            reset(&self.host);
        }
    }
}

/// Which end of a direction failed.
enum Side {
    From,
    To,
}

/// Carries one direction to its end.
async fn pour(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    count: &AtomicU64,
    ear: &Ear,
    space: &mut [u8],
) -> Result<(), Side> {
    loop {
        ear.admitted().await;
        let length = from.read(space).await.map_err(|_| Side::From)?;
        // The policy may have changed while nothing was said.
        ear.admitted().await;
        if length == 0 {
            ear.end();
            // It fails only if the connection is gone, which the other direction tells.
            let _ = to.shutdown().await;
            return Ok(());
        }
        ear.hear(&space[..length]);
        to.write_all(&space[..length]).await.map_err(|_| Side::To)?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}
