//! Reads refused packets from the kernel's log and records their destination and the reason.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use tokio::io::unix::AsyncFd;

use super::answer::Refuser;
use super::hub::Hub;
use super::nflog::{packet_in, was_forwarded};
use super::vm::Vm;
use crate::netlink::{Netlink, Received};
use crate::policy::Transport;

/// The nflog group of refusals. A host's own rules use low numbers.
pub(super) const GROUP: u16 = 0xa150;

/// Records refusals in the logs of the VMs and sends the guests ICMP errors, until the bridge is closed.
pub(super) async fn serve(hub: Arc<Hub>, log: AsyncFd<Netlink>) {
    let refuser = Refuser::open(hub.settings.address)
        .inspect_err(
            |error| tracing::warn!(%error, "cannot send ICMP errors; only the kernel tells guests of refused datagrams"),
        )
        .ok();
    loop {
        let Ok(mut ready) = log.readable().await else { return };
        match ready.try_io(|log| log.get_ref().receive()) {
            Ok(Ok(messages)) => messages.iter().for_each(|message| record(&hub, refuser.as_ref(), message)),
            // The kernel logged more than we could read; it drops the rest and goes on.
            Ok(Err(error)) => tracing::debug!(%error, "some refusals are missing from the logs"),
            Err(_would_block) => {}
        }
    }
}

fn record(hub: &Hub, refuser: Option<&Refuser>, message: &Received) {
    let Some(packet) = packet_in(message) else { return };
    let Some(refused) = Refused::read(packet) else { return };
    let Some(vm) = hub.vm_at(refused.from) else { return };
    if let Some(refuser) = refuser {
        refuser.refuse(packet);
    }
    // A packet that reached the forward hook was allowed and then refused by the rules that count.
    let why = match was_forwarded(message) {
        true => "the VM has more open flows than its log can count".to_owned(),
        false => why(hub, &vm, &refused),
    };
    vm.refused(refused.transport, refused.port, refused.to, None, why);
}

/// The reason, in the same words as the gateway's.
fn why(hub: &Hub, vm: &Vm, refused: &Refused) -> String {
    let Refused { transport, to, .. } = *refused;
    hub.refusal(vm, transport, to, None).unwrap_or_else(|| {
        let text = match (transport, hub.is_neighbour(*to.ip())) {
            (Transport::Icmp, true) => "only TCP, UDP and ping pass between VMs",
            (Transport::Icmp, false) => "only TCP and UDP leave the gateway, no ping",
            (Transport::Tcp | Transport::Udp, _) => {
                "it was not allowed when it was sent, or the VM had too many connections"
            }
        };
        text.to_owned()
    })
}

/// A packet that was refused.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    from: Ipv4Addr,
    transport: Transport,
    port: Option<u16>,
    /// Port 0 for protocols without ports.
    to: SocketAddrV4,
}

impl Refused {
    fn read(packet: &[u8]) -> Option<Self> {
        let head: &[u8; 20] = packet.first_chunk()?;
        let length = usize::from(head[0] & 0xf) * 4;
        let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
        let port = |at: usize| Some(u16::from_be_bytes(*packet.get(length + at..)?.first_chunk()?));
        let (transport, from_port, to_port) = match head[9] {
            6 => (Transport::Tcp, port(0), port(2)?),
            17 => (Transport::Udp, port(0), port(2)?),
            _ => (Transport::Icmp, None, 0),
        };
        let to = SocketAddrV4::new(address(16), to_port);
        Some(Self { from: address(12), transport, port: from_port, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refused_segment_is_read_behind_ip_options() {
        let mut packet = vec![0x46, 0, 0, 44, 0, 0, 0, 0, 64, 6, 0, 0, 10, 42, 0, 2, 9, 9, 9, 9];
        packet.extend([1, 1, 1, 1, 0x9c, 0x40, 1, 0xbb]);
        let to = "9.9.9.9:443".parse().unwrap();
        let from = Ipv4Addr::new(10, 42, 0, 2);
        assert_eq!(
            Refused::read(&packet),
            Some(Refused { from, transport: Transport::Tcp, port: Some(40_000), to })
        );
        assert_eq!(Refused::read(&packet[..25]), None);
    }

    proptest! {
        #[test]
        fn refusal_reader_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Refused::read(&bytes);
        }
    }
}
