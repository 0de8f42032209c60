//! The daemon's services at ports of the gateway, which the kernel redirects to our listeners.

use std::net::{IpAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::join;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::io::{InspectReader, InspectWriter};

use super::hub::Hub;
use super::vm::Vm;
use crate::flow::account::Account;
use crate::flow::service::NOT_ADMITTED;
use crate::flow::{Duplex, Service};
use crate::policy::Transport;

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts redirected connections, until the bridge is closed.
pub(super) async fn serve(hub: Arc<Hub>, listener: TcpListener, service: Arc<dyn Service>) {
    let us = SocketAddrV4::new(hub.settings.address, service.port());
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                // Connections that are not from one of our VMs, such as the host's own, are closed.
                let (Some(vm), IpAddr::V4(guest)) = (hub.vm_of(client), client.ip()) else { continue };
                if !service.admits(guest) {
                    let _ = stream.set_zero_linger();
                    vm.refused(Transport::Tcp, Some(client.port()), us, None, NOT_ADMITTED.to_owned());
                    continue;
                }
                let Ok(permit) = vm.flows.clone().try_acquire_owned() else { continue };
                let counted = Counted::new(&vm, client.port(), us);
                let serving = service.serve(guest, counted.stream(stream));
                vm.spawn(async move {
                    serving.await;
                    drop((counted, permit));
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection for the service");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Counts the bytes of a connection for the log.
#[derive(Debug)]
struct Counted {
    account: Account,
    up: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
}

impl Counted {
    fn new(vm: &Vm, guest_port: u16, us: SocketAddrV4) -> Self {
        let account = Account::opened(&vm.log, Transport::Tcp, guest_port, us, "gateway", None);
        Self { account, up: Arc::default(), down: Arc::default() }
    }

    /// Wraps the connection so that all its bytes are counted.
    fn stream(&self, stream: TcpStream) -> Box<dyn Duplex> {
        let (read, write) = stream.into_split();
        let count = |counter: &Arc<AtomicU64>| {
            let counter = counter.clone();
            move |bytes: &[u8]| {
                counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        };
        let (read, write) =
            (InspectReader::new(read, count(&self.up)), InspectWriter::new(write, count(&self.down)));
        Box::new(join(read, write))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.account.up = self.up.load(Ordering::Relaxed);
        self.account.down = self.down.load(Ordering::Relaxed);
    }
}
