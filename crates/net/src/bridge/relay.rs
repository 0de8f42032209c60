//! Relays TCP to the outside. The kernel redirects every connection that the rules let out to our listener, which finds
//! the host it names and carries it through a socket of the host. So names are checked as in the gateway, a flow ends
//! with the policy that allowed it, and the host forwards no TCP.

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

use super::guest_to_host::{BUFFER, ServerOutput, carry_guest_to_host, while_allowed};
use super::hub::Hub;
use super::vm::Vm;
use crate::flow::account::Account;
use crate::flow::account::End;
use crate::flow::budget::Buffers;
use crate::flow::gate::Gate;
use crate::flow::limits::KEEP_ALIVE;
use crate::policy::Transport;

/// Pause after a failed accept: too many open files, most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts redirected connections, until the bridge is closed.
pub(super) async fn serve(hub: Arc<Hub>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((guest, client)) => open(&hub, guest, client),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a guest's connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn open(hub: &Arc<Hub>, guest: TcpStream, client: std::net::SocketAddr) {
    let Some(vm) = hub.vm_of(client) else { return reset(&guest) };
    // A connection without an original target was opened to our listener directly, which the rules prevent.
    let (Ok(to), Ok(us)) = (ip_original_dst(&guest), guest.local_addr()) else { return reset(&guest) };
    if us == to.into() {
        return reset(&guest);
    }
    let Ok(permit) = vm.flows.clone().try_acquire_owned() else {
        let limit = hub.settings.limits.flows;
        let message = format!("the VM has {limit} connections, which is its limit");
        vm.refused(Transport::Tcp, Some(client.port()), to, None, message);
        return reset(&guest);
    };
    let Ok(guest) = guest.into_std() else { return };
    let (hub, carrier) = (hub.clone(), vm.clone());
    vm.spawn(async move {
        // Registered again, so that the kernel wakes the thread that carries it.
        if let Ok(guest) = TcpStream::from_std(guest) {
            carry(&hub, &carrier, guest, client.port(), to).await;
        }
        drop(permit);
    });
}

/// Makes a connection end with a reset, so that the guest does not take a partial transfer for a complete one.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn carry(hub: &Hub, vm: &Vm, guest: TcpStream, guest_port: u16, to: SocketAddrV4) {
    let refused = |message: String| vm.refused(Transport::Tcp, Some(guest_port), to, None, message);
    let gate = match Gate::open(vm.guard.clone(), to) {
        Ok(gate) => gate,
        Err(refusal) => {
            reset(&guest);
            return refused(refusal.message);
        }
    };
    let Ok(connecting) = vm.connecting.clone().try_acquire_owned() else {
        reset(&guest);
        let limit = hub.settings.limits.connecting;
        return refused(format!("{limit} connections wait for their servers, which is the VM's limit"));
    };
    let mut buffers = match vm.budget.buffers(BUFFER) {
        Ok(buffers) => buffers,
        Err(problem) => {
            reset(&guest);
            return refused(format!("not enough memory for another connection: {problem}"));
        }
    };
    let mut account = Account::opened(&vm.log, Transport::Tcp, guest_port, to, gate.rule(), gate.name());
    let connected = timeout(hub.settings.connect_deadline, hub.settings.dialer.connect(to)).await;
    drop(connecting);
    let host = match connected {
        Ok(Ok(host)) => host,
        Ok(Err(error)) => {
            reset(&guest);
            return account.set_message(match error.kind() == io::ErrorKind::ConnectionRefused {
                true => "the server refused the connection".to_owned(),
                false => format!("the server cannot be reached: {error}"),
            });
        }
        Err(_elapsed) => {
            reset(&guest);
            return account.set_message("the server did not answer".to_owned());
        }
    };
    let mut flow = Flow { gate, up: AtomicU64::new(0), down: AtomicU64::new(0) };
    let end = flow.run(Ends { guest, host, finished: false }, &mut buffers).await;
    if let Some(name) = flow.gate.name() {
        account.set_name(name);
    }
    (account.up, account.down) = (flow.up.into_inner(), flow.down.into_inner());
    account.set_end(&end);
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
    /// Carries bytes until both sides have ended, and closes or resets both.
    async fn run(&mut self, mut ends: Ends, buffers: &mut Buffers) -> End {
        // They affect how soon small pieces are sent, and how soon a dead VM is noticed.
        let _ = ends.guest.set_nodelay(true);
        let _ = set_socket_keepalive(&ends.guest, true);
        let _ = set_tcp_keepidle(&ends.guest, KEEP_ALIVE);
        let end = self.both(&mut ends.guest, &mut ends.host, buffers).await;
        ends.finished = matches!(end, End::Finished);
        end
    }

    async fn both(&mut self, guest: &mut TcpStream, host: &mut TcpStream, buffers: &mut Buffers) -> End {
        let Self { gate, up, down } = self;
        let server = ServerOutput::new(gate);
        let (from_guest, to_guest) = guest.split();
        let (from_host, to_host) = host.split();
        let (up_buffer, down_buffer) = buffers.split();
        let mut down = pin!(carry_host_to_guest(from_host, to_guest, down, &server, down_buffer));
        let mut host_ended = false;
        let guest = {
            let mut up = pin!(carry_guest_to_host(gate, from_guest, to_host, up, &server, up_buffer));
            loop {
                // The guest's side first, because refusals come from it.
                tokio::select! {
                    biased;
                    carried = &mut up => match carried {
                        Ok(guest) => break guest,
                        Err(end) => return end,
                    },
                    carried = &mut down, if !host_ended => match carried {
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
            carried = while_allowed(gate, &server, down) => match carried {
                Err(refusal) => End::Refused(refusal),
                Ok(Ok(())) => End::Finished,
                Ok(Err(Side::From)) => End::HostReset,
                Ok(Err(Side::To)) => End::GuestReset,
            },
            // The guest closed its side and then forgot the connection, while its server is silent.
            _ = guest.ready(Interest::ERROR) => End::GuestReset,
        }
    }
}

/// Both ends of a connection. If they are dropped before `finished`, both are reset, so that neither side takes a
/// partial transfer for a complete one.
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

/// The end of a direction that failed.
enum Side {
    From,
    To,
}

/// Carries the server's bytes to the guest, until the server closes.
async fn carry_host_to_guest(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    count: &AtomicU64,
    server: &ServerOutput,
    space: &mut [u8],
) -> Result<(), Side> {
    loop {
        server.wait_until_admitted().await;
        let length = from.read(space).await.map_err(|_| Side::From)?;
        // The policy may have changed while the read waited.
        server.wait_until_admitted().await;
        if length == 0 {
            server.set_ended();
            // It fails only if the connection is gone, which the other direction shows.
            let _ = to.shutdown().await;
            return Ok(());
        }
        server.record(&space[..length]);
        to.write_all(&space[..length]).await.map_err(|_| Side::To)?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}
