//! The link to one guest: queues of frames that its VM's writer sends.

use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv4Repr};
use tokio::sync::mpsc;

use super::frame::{ETHERNET, PREFIX};
use super::pool::{Buffer, Pool};
use super::queues::QUEUED_UP;
use crate::flow::GATEWAY_MAC;

/// Offset of the IP packet in a buffer that is sent to a guest.
const PACKET: usize = PREFIX + ETHERNET;

/// Hop limit of packets of our own, as in Linux.
const HOPS: u8 = 64;

#[derive(Clone, Debug)]
pub(crate) struct Link {
    guest: [u8; 6],
    /// Frames of flows, which wait for room in turn.
    flows: mpsc::Sender<Buffer>,
    /// Other frames, which do not wait and must not find a queue full of flows.
    others: mpsc::Sender<Buffer>,
    /// Frames that the guest does not wait for; see [`Link::send_later`].
    later: mpsc::Sender<Buffer>,
    pool: Pool,
}

/// The writer's end of a link.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) flows: mpsc::Receiver<Buffer>,
    pub(crate) others: mpsc::Receiver<Buffer>,
    pub(crate) later: mpsc::Receiver<Buffer>,
}

impl Queues {
    /// Discards all queued frames.
    pub(crate) fn clear(&mut self) {
        let Self { flows, others, later } = self;
        for queue in [flows, others, later] {
            while queue.try_recv().is_ok() {}
        }
    }
}

impl Link {
    pub(crate) fn new(guest: [u8; 6], queue: usize) -> (Self, Queues) {
        let (flows, waiting_flows) = mpsc::channel(queue);
        let (others, waiting_others) = mpsc::channel(queue);
        let (later, waiting_later) = mpsc::channel(queue);
        let queues = Queues { flows: waiting_flows, others: waiting_others, later: waiting_later };
        (Self { guest, flows, others, later, pool: Pool::new(QUEUED_UP) }, queues)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A frame for an IP packet of this length, complete except for the packet.
    pub(crate) fn frame(&self, length: usize) -> Frame {
        self.frame_of(EthernetProtocol::Ipv4, length)
    }

    pub(crate) fn frame_of(&self, protocol: EthernetProtocol, length: usize) -> Frame {
        let mut buffer = self.pool.take(PACKET + length);
        let announced = u32::try_from(ETHERNET + length).unwrap_or(u32::MAX);
        buffer[..PREFIX].copy_from_slice(&announced.to_be_bytes());
        let mut head = EthernetFrame::new_unchecked(&mut buffer[PREFIX..]);
        head.set_dst_addr(EthernetAddress(self.guest));
        head.set_src_addr(EthernetAddress(GATEWAY_MAC));
        head.set_ethertype(protocol);
        Frame(buffer)
    }

    /// A frame with an IP packet of our own; `fill` writes the bytes after the IP header.
    pub(crate) fn ipv4(
        &self,
        from: Ipv4Addr,
        to: Ipv4Addr,
        protocol: IpProtocol,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Frame {
        let head = Ipv4Repr {
            src_addr: from,
            dst_addr: to,
            next_header: protocol,
            payload_len: length,
            hop_limit: HOPS,
        };
        let mut frame = self.frame(head.buffer_len() + length);
        let mut packet = Ipv4Packet::new_unchecked(frame.packet());
        head.emit(&mut packet, &ChecksumCapabilities::default());
        fill(packet.payload_mut());
        frame
    }

    /// Room for one frame of a flow, if there is any without waiting.
    pub(crate) fn room(&self) -> Option<Room> {
        self.flows.clone().try_reserve_owned().ok().map(Room)
    }

    /// Waits for room in turn with the other flows. A caller that has waited must use the room it gets: asking anew
    /// would go to the end of the queue.
    pub(crate) async fn wait(&self) -> Option<Room> {
        self.flows.clone().reserve_owned().await.ok().map(Room)
    }

    /// Sends a frame together with others of its kind: waking a guest costs it more than a frame does, so frames that
    /// it does not wait for are sent in batches. Returns the frame if too many wait.
    fn send_later(&self, frame: Frame) -> Result<(), Frame> {
        self.later.try_send(frame.0).map_err(|full| Frame(full.into_inner()))
    }

    /// Sends if there is room; `false` if the frame was dropped.
    pub(crate) fn send(&self, frame: Frame) -> bool {
        self.others.try_send(frame.0).is_ok()
    }
}

/// A frame on its way to the guest.
#[derive(Debug)]
pub(crate) struct Frame(Buffer);

impl Frame {
    /// The bytes after the Ethernet header.
    pub(crate) fn packet(&mut self) -> &mut [u8] {
        &mut self.0[PACKET..]
    }
}

/// Room for one frame.
#[derive(Debug)]
pub(crate) struct Room(mpsc::OwnedPermit<Buffer>);

impl Room {
    pub(crate) fn send(self, frame: Frame) {
        self.0.send(frame.0);
    }

    /// Sends a frame that the guest does not wait for; the room is used only if that queue is full.
    pub(crate) fn send_later(self, link: &Link, frame: Frame) {
        if let Err(frame) = link.send_later(frame) {
            self.send(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_frames_reach_no_later_reader() {
        let (link, mut queues) = Link::new([2; 6], 2);
        assert!(link.send(link.frame(20)) && link.send(link.frame(20)) && !link.send(link.frame(20)));
        link.room().unwrap().send(link.frame(20));
        link.room().unwrap().send_later(&link, link.frame(20));
        queues.clear();
        let Queues { flows, others, later } = &mut queues;
        assert!([flows, others, later].into_iter().all(|queue| queue.try_recv().is_err()));
        assert!(link.send(link.frame(20)), "there is room again");
    }
}
