//! Decides when the counts are read: as soon as the kernel logs something new, and every second while any flow is open.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::bridge::hub::Hub;
use crate::bridge::nflog::packet_in;
use crate::netlink::{Netlink, Received};

/// The nflog group for new flows in the table of counts.
pub(in crate::bridge) const GROUP: u16 = 0xa151;

/// Shortest time between two reads; events in between are handled together.
const MOMENT: Duration = Duration::from_millis(50);

/// Delay until a flow is seen that the kernel did not log, and the precision of idle times.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps the logs up to date, until the bridge is closed.
pub(in crate::bridge) async fn serve(hub: Arc<Hub>, log: AsyncFd<Netlink>) {
    // VMs with logged packets whose counts were not read yet.
    let mut stirred = BTreeSet::new();
    // VMs that had nothing open when their counts were read. They are read once more, because a packet is logged before
    // it is counted.
    let mut once_more = BTreeSet::new();
    let mut next_look = Instant::now();
    let mut round: Option<Instant> = None;
    loop {
        let due = match (stirred.is_empty(), round) {
            (false, _) => Some(next_look),
            (true, round) => round,
        };
        tokio::select! {
            // Due reads are not delayed by new events.
            biased;
            () = until(due) => {
                let told = std::mem::take(&mut stirred);
                let mut all = told.clone();
                if round.is_some_and(|round| round <= Instant::now()) {
                    let busy = hub.all().into_iter().filter(|vm| !vm.flow_table().is_empty());
                    all.extend(busy.map(|vm| vm.identity.address));
                    all.append(&mut once_more);
                    round = None;
                }
                let mut again = false;
                for vm in all.into_iter().filter_map(|address| hub.vm_at(address)) {
                    let address = vm.identity.address;
                    match hub.look(&vm) {
                        true => again = true,
                        false if told.contains(&address) => {
                            once_more.insert(address);
                            again = true;
                        }
                        false => {}
                    }
                }
                if again && round.is_none() {
                    round = Some(Instant::now() + EVERY);
                }
                next_look = Instant::now() + MOMENT;
            }
            ready = log.readable() => {
                let Ok(mut ready) = ready else { return };
                match ready.try_io(|log| log.get_ref().receive()) {
                    Ok(Ok(messages)) => stirred.extend(messages.iter().flat_map(ends)),
                    // The kernel logged more than we could read.
                    Ok(Err(_)) => stirred.extend(hub.all().iter().map(|vm| vm.identity.address)),
                    Err(_would_block) => {}
                }
            }
        }
    }
}

/// Sleeps until the time; for ever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Both addresses of a packet: either may belong to a VM.
fn ends(message: &Received) -> impl Iterator<Item = Ipv4Addr> {
    let address =
        |head: &[u8; 20], at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    let head = packet_in(message).and_then(|packet| packet.first_chunk::<20>());
    head.map(|head| [address(head, 12), address(head, 16)]).into_iter().flatten()
}
