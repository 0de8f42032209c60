//! When the counts are looked at: as soon as the kernel tells of something new, and every second while anything is open.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::bridge::hub::Hub;
use crate::bridge::told::packet_in;
use crate::netlink::{Netlink, Received};

/// The group that our table of counts tells of new flows in.
pub(in crate::bridge) const GROUP: u16 = 0xa151;

/// Between two looks at one machine: what comes meanwhile is seen together.
const MOMENT: Duration = Duration::from_millis(50);

/// How late a flow may be seen that the kernel did not tell of, and how exact the time of silence is.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps the logs up to date, until the bridge is closed.
pub(in crate::bridge) async fn serve(hub: Arc<Hub>, log: AsyncFd<Netlink>) {
    // Whoever was told of and not looked at.
    let mut stirred = BTreeSet::new();
    // Who was looked at and had nothing open: a packet is told of before it is counted.
    let mut once_more = BTreeSet::new();
    let mut next_look = Instant::now();
    let mut round: Option<Instant> = None;
    loop {
        let due = match (stirred.is_empty(), round) {
            (false, _) => Some(next_look),
            (true, round) => round,
        };
        tokio::select! {
            // What is due is not put off by what else comes.
            biased;
            () = until(due) => {
                let told = std::mem::take(&mut stirred);
                let mut all = told.clone();
                if round.is_some_and(|round| round <= Instant::now()) {
                    let busy = hub.all().into_iter().filter(|place| !place.ledger().is_empty());
                    all.extend(busy.map(|place| place.seat.address));
                    all.append(&mut once_more);
                    round = None;
                }
                let mut again = false;
                for place in all.into_iter().filter_map(|address| hub.place_at(address)) {
                    let address = place.seat.address;
                    match hub.look(&place) {
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
                    // More was new than we could read.
                    Ok(Err(_)) => stirred.extend(hub.all().iter().map(|place| place.seat.address)),
                    Err(_would_block) => {}
                }
            }
        }
    }
}

/// Without a time, never.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Both addresses of a packet: either may be a machine's.
fn ends(message: &Received) -> impl Iterator<Item = Ipv4Addr> {
    let address =
        |head: &[u8; 20], at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    let head = packet_in(message).and_then(|packet| packet.first_chunk::<20>());
    head.map(|head| [address(head, 12), address(head, 16)]).into_iter().flatten()
}
