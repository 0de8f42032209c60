//! The bridge of one daemon.

use std::io;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;

use agentiso_core::network::Network;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use super::error::{BridgeError, KernelContext};
use super::hub::Hub;
use super::port::Port;
use super::render::{self, BridgeLayout, ServicePorts};
use super::vm::Vm;
use super::wiring::Wiring;
use super::{flows, names, nflog, refusals, relay, service, tap};
use crate::flow::log::FlowLog;
use crate::flow::{NetIdentity, Settings};
use crate::policy::Guard;

/// The owner of the bridge binds an abstract socket of this name: there is one per network namespace, as of our tables,
/// and it disappears with its process.
const OWNER: &[u8] = b"agentiso-bridge";

/// All VMs of one daemon. When it is dropped or closed, nothing of it is left in the kernel, unless a VM is still
/// connected.
#[derive(Debug)]
pub struct Bridge {
    hub: Arc<Hub>,
    ended: CancellationToken,
    _owner: UnixListener,
}

impl Bridge {
    /// Sets up the bridge, or takes over the one that an earlier daemon left. Must be called within the runtime.
    /// The name has at most 15 characters.
    pub fn open(name: &str, settings: Settings) -> Result<Self, BridgeError> {
        let owner = own()?;
        let mut wiring = Wiring::open(name, settings.address, settings.prefix, settings.mtu)?;
        let served = Self::serve(name, &settings, &mut wiring).inspect_err(|_| wiring.close());
        served.map(|(layout, sockets)| Self::start(settings, layout, wiring, sockets, owner))
    }

    fn serve(
        name: &str,
        settings: &Settings,
        wiring: &mut Wiring,
    ) -> Result<(BridgeLayout, Sockets), BridgeError> {
        let sockets = Sockets::open(settings.address, settings.services.len())
            .context(|| format!("listen on {}", settings.address))?;
        let ports = sockets.ports().context(|| format!("listen on {}", settings.address))?;
        let layout = BridgeLayout {
            bridge: name.to_owned(),
            gateway: settings.address,
            subnet: Network::around(settings.address, settings.prefix),
            tap_prefix: tap::PREFIX,
            relay_port: ports.relay,
            names_port: ports.names,
            names_tcp_port: ports.names_tcp,
            services: std::iter::zip(&settings.services, ports.services)
                .map(|(service, ours)| ServicePorts { theirs: service.port(), ours })
                .collect(),
            log_group: refusals::GROUP,
            flows_group: flows::GROUP,
        };
        // Revokes what an earlier daemon allowed: nothing passes until its VMs are attached again.
        wiring.set_rules(&render::tables(&layout, &[]))?;
        Ok((layout, sockets))
    }

    fn start(
        settings: Settings,
        layout: BridgeLayout,
        wiring: Wiring,
        sockets: Sockets,
        owner: UnixListener,
    ) -> Self {
        let counted =
            flows::Counts::open(&layout).and_then(|counts| Ok((counts, nflog::listen(flows::GROUP)?)));
        let (counts, news) = match counted {
            Ok((counts, news)) => (Some(counts), Some(news)),
            Err(error) => {
                tracing::warn!(%error, "cannot count what the kernel forwards by itself; the logs of VMs show it only when it is refused");
                (None, None)
            }
        };
        let hub = Arc::new(Hub::new(settings, layout, wiring, counts));
        let ended = CancellationToken::new();
        let spawn = |work: futures::future::BoxFuture<'static, ()>| {
            tokio::spawn(ended.clone().run_until_cancelled_owned(work));
        };
        spawn(Box::pin(relay::serve(hub.clone(), sockets.relay)));
        spawn(Box::pin(names::serve_datagrams(hub.clone(), sockets.names)));
        spawn(Box::pin(names::serve_connections(hub.clone(), sockets.names_tcp)));
        for (listener, service) in std::iter::zip(sockets.services, &hub.settings.services) {
            spawn(Box::pin(service::serve(hub.clone(), listener, service.clone())));
        }
        if let Some(news) = news {
            spawn(Box::pin(flows::serve(hub.clone(), news)));
        }
        match nflog::listen(refusals::GROUP) {
            Ok(log) => spawn(Box::pin(refusals::serve(hub.clone(), log))),
            Err(error) => tracing::warn!(%error, "cannot record what the kernel refuses in the logs of VMs"),
        }
        Self { hub, ended, _owner: owner }
    }

    /// Creates a port for a VM whose QEMU opens the device `tap`, before or after this call. The VM's traffic is
    /// carried by the runtime that this is called within.
    pub fn attach(
        &self,
        identity: NetIdentity,
        tap: &str,
        guard: Guard,
        log: FlowLog,
    ) -> Result<Port, BridgeError> {
        let vm = Arc::new(Vm::new(identity, tap.to_owned(), guard, log, self.hub.settings.limits));
        self.hub.join(&vm)?;
        Ok(Port::new(vm, self.hub.clone()))
    }

    /// Removes the ports and addresses that an earlier daemon left and whose VMs are gone.
    pub fn sweep(&self) -> Result<(), BridgeError> {
        self.hub.sweep()
    }

    /// Stops serving and removes everything from the kernel. Call it when all VMs are gone.
    pub fn close(&self) {
        self.ended.cancel();
        self.hub.wiring().close();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if !self.ended.is_cancelled() {
            self.close();
        }
    }
}

fn own() -> Result<UnixListener, BridgeError> {
    let name = SocketAddr::from_abstract_name(OWNER).context(|| "claim the bridge".to_owned())?;
    UnixListener::bind_addr(&name).map_err(|source| match source.kind() == io::ErrorKind::AddrInUse {
        true => BridgeError::Taken,
        false => BridgeError::Kernel { what: "claim the bridge".to_owned(), source },
    })
}

/// Our listening sockets at the gateway's address.
#[derive(Debug)]
struct Sockets {
    relay: TcpListener,
    names: UdpSocket,
    names_tcp: TcpListener,
    services: Vec<TcpListener>,
}

#[derive(Clone, Debug)]
struct Ports {
    relay: u16,
    names: u16,
    names_tcp: u16,
    services: Vec<u16>,
}

impl Sockets {
    fn open(address: Ipv4Addr, services: usize) -> io::Result<Self> {
        let listener = || {
            let listener = std::net::TcpListener::bind((address, 0))?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let names = std::net::UdpSocket::bind((address, 0))?;
        names.set_nonblocking(true)?;
        let services = (0..services).map(|_| listener()).collect::<Result<_, _>>()?;
        let names = UdpSocket::from_std(names)?;
        Ok(Self { relay: listener()?, names, names_tcp: listener()?, services })
    }

    fn ports(&self) -> io::Result<Ports> {
        Ok(Ports {
            relay: self.relay.local_addr()?.port(),
            names: self.names.local_addr()?.port(),
            names_tcp: self.names_tcp.local_addr()?.port(),
            services: self
                .services
                .iter()
                .map(|listener| Ok(listener.local_addr()?.port()))
                .collect::<io::Result<_>>()?,
        })
    }
}
