//! Sets the kernel's links, addresses and neighbours, as `ip` and `bridge` do.

use std::io;
use std::net::Ipv4Addr;

use crate::netlink::{Attributes, Message, Netlink, Subsystem};

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const NEW_NEIGHBOUR: u16 = 28;
const DELETE_NEIGHBOUR: u16 = 29;
const GET_NEIGHBOUR: u16 = 30;

/// `NLM_F_REPLACE`, `NLM_F_EXCL`, `NLM_F_CREATE`.
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const AF_INET: u8 = 2;
const AF_BRIDGE: u8 = 7;

/// The length of `struct ifinfomsg`.
const LINK_HEAD: usize = 16;

/// The length of `struct ndmsg`.
const NEIGHBOUR_HEAD: usize = 12;

/// `NUD_PERMANENT`.
const PERMANENT: u16 = 0x80;

mod attribute {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const NAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const MASTER: u16 = 10;
    pub(super) const INFO: u16 = 18;
    pub(super) const CARRIER: u16 = 33;
    /// Inside [`INFO`].
    pub(super) const KIND: u16 = 1;
    pub(super) const PORT_KIND: u16 = 4;
    pub(super) const PORT_DATA: u16 = 5;
    /// Inside [`PORT_DATA`].
    pub(super) const PORT_LEARNING: u16 = 8;
    pub(super) const PORT_UNICAST_FLOOD: u16 = 9;
    pub(super) const PORT_MULTICAST_FLOOD: u16 = 27;
    pub(super) const PORT_BROADCAST_FLOOD: u16 = 30;
    pub(super) const PORT_ISOLATED: u16 = 33;
}

/// A link as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Option<[u8; 6]>,
    /// `bridge` or `tun`; `None` for hardware.
    pub(crate) kind: Option<String>,
    /// Whether something is connected at the other end.
    pub(crate) carrier: bool,
}

#[derive(Debug)]
pub(crate) struct Links(Netlink);

impl Links {
    pub(crate) fn open() -> io::Result<Self> {
        Netlink::open(Subsystem::Route).map(Self)
    }

    pub(crate) fn all(&mut self) -> io::Result<Vec<Link>> {
        let listed = self.0.list(link_message(GET_LINK, 0, 0))?;
        Ok(listed.iter().filter_map(|message| read(&message.body, message.attributes(LINK_HEAD))).collect())
    }

    pub(crate) fn find(&mut self, name: &str) -> io::Result<Option<Link>> {
        Ok(self.all()?.into_iter().find(|link| link.name == name))
    }

    /// Creates a bridge with this fixed hardware address, which ports do not change.
    pub(crate) fn make_bridge(&mut self, name: &str, mac: [u8; 6]) -> io::Result<()> {
        let mut message = link_message(NEW_LINK, CREATE | EXCLUSIVE, 0);
        message.text(attribute::NAME, name).bytes(attribute::ADDRESS, &mac);
        message.nest(attribute::INFO, |info| {
            info.text(attribute::KIND, "bridge");
        });
        self.0.request(message)
    }

    /// Sets a link's MTU and brings it up.
    pub(crate) fn raise(&mut self, index: u32, mtu: u16) -> io::Result<()> {
        let mut message = link_message(NEW_LINK, 0, index);
        message.number(attribute::MTU, u32::from(mtu));
        self.0.request(message)?;
        self.0.request(flags_message(index, true))
    }

    pub(crate) fn lower(&mut self, index: u32) -> io::Result<()> {
        self.0.request(flags_message(index, false))
    }

    pub(crate) fn remove(&mut self, index: u32) -> io::Result<()> {
        self.0.request(link_message(DELETE_LINK, 0, index))
    }

    /// Makes a link an isolated port of a bridge: it exchanges nothing with other such ports, and gets only frames
    /// addressed to it.
    pub(crate) fn make_port(&mut self, index: u32, bridge: u32) -> io::Result<()> {
        let mut message = link_message(NEW_LINK, 0, index);
        message.number(attribute::MASTER, bridge);
        self.0.request(message)?;
        let mut message = link_message(NEW_LINK, 0, index);
        message.nest(attribute::INFO, |info| {
            info.text(attribute::PORT_KIND, "bridge").nest(attribute::PORT_DATA, |data| {
                data.byte(attribute::PORT_ISOLATED, 1);
                // A guest's frames must not change the bridge's address table.
                data.byte(attribute::PORT_LEARNING, 0);
                data.byte(attribute::PORT_UNICAST_FLOOD, 0);
                data.byte(attribute::PORT_MULTICAST_FLOOD, 0);
                data.byte(attribute::PORT_BROADCAST_FLOOD, 0);
            });
        });
        self.0.request(message)
    }

    pub(crate) fn set_address(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut head = vec![AF_INET, prefix, 0, 0];
        head.extend(index.to_ne_bytes());
        let mut message = Message::new(NEW_ADDRESS, CREATE | REPLACE, &head);
        message.bytes(1, &address.octets()).bytes(2, &address.octets());
        self.0.request(message)
    }

    /// Fixes the hardware address of an IP address, so that no ARP request is needed and no false answer has an effect.
    pub(crate) fn set_neighbour(&mut self, index: u32, address: Ipv4Addr, mac: [u8; 6]) -> io::Result<()> {
        let mut message = neighbour_message(NEW_NEIGHBOUR, AF_INET, index, PERMANENT, 0);
        message.bytes(1, &address.octets()).bytes(2, &mac);
        self.0.request(message)
    }

    /// The addresses with fixed neighbour entries at a link.
    pub(crate) fn fixed_neighbours(&mut self, index: u32) -> io::Result<Vec<Ipv4Addr>> {
        let listed = self.0.list(neighbour_message(GET_NEIGHBOUR, AF_INET, 0, 0, 0))?;
        let fixed = listed.iter().filter_map(|message| {
            let head: &[u8; NEIGHBOUR_HEAD] = message.body.first_chunk()?;
            let at = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
            let is_fixed = u16::from_ne_bytes([head[8], head[9]]) & PERMANENT != 0;
            let address: [u8; 4] = message.attributes(NEIGHBOUR_HEAD).get(1)?.try_into().ok()?;
            (head[0] == AF_INET && at == index && is_fixed).then(|| Ipv4Addr::from(address))
        });
        Ok(fixed.collect())
    }

    pub(crate) fn forget_neighbour(&mut self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        let mut message = neighbour_message(DELETE_NEIGHBOUR, AF_INET, index, 0, 0);
        message.bytes(1, &address.octets());
        self.0.request(message)
    }

    /// Fixes the port of the bridge that a network card is at.
    pub(crate) fn set_card(&mut self, port: u32, mac: [u8; 6]) -> io::Result<()> {
        /// `NUD_NOARP`, which means a fixed entry here, and `NTF_MASTER`: in the bridge's table.
        const FIXED: u16 = 0x40;
        const OF_MASTER: u8 = 4;
        let mut message = neighbour_message(NEW_NEIGHBOUR, AF_BRIDGE, port, FIXED, OF_MASTER);
        message.bytes(2, &mac);
        self.0.request(message)
    }

    /// Limits the output of a link, in bytes per second. `None`: unlimited.
    pub(crate) fn set_rate(&mut self, index: u32, rate: Option<u64>) -> io::Result<()> {
        match rate {
            Some(rate) => self.0.request(super::rate::limit(index, rate)),
            None => match self.0.request(super::rate::no_limit(index)) {
                // There was no limit.
                Err(error) if matches!(error.raw_os_error(), Some(2 | 22)) => Ok(()),
                result => result,
            },
        }
    }
}

fn read(head: &[u8], attributes: Attributes<'_>) -> Option<Link> {
    let info = attributes.get(attribute::INFO).map(Attributes::new);
    Some(Link {
        index: u32::from_ne_bytes(*head.get(4..)?.first_chunk()?),
        name: attributes.text(attribute::NAME)?.to_owned(),
        mac: attributes.get(attribute::ADDRESS).and_then(|mac| mac.try_into().ok()),
        kind: info.and_then(|info| info.text(attribute::KIND)).map(str::to_owned),
        carrier: attributes.get(attribute::CARRIER) == Some(&[1]),
    })
}

fn link_message(kind: u16, flags: u16, index: u32) -> Message {
    let mut head = [0; LINK_HEAD];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    Message::new(kind, flags, &head)
}

fn flags_message(index: u32, up: bool) -> Message {
    /// `IFF_UP`.
    const UP: u32 = 1;
    let mut head = [0; LINK_HEAD];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..12].copy_from_slice(&(if up { UP } else { 0 }).to_ne_bytes());
    head[12..16].copy_from_slice(&UP.to_ne_bytes());
    Message::new(NEW_LINK, 0, &head)
}

fn neighbour_message(kind: u16, family: u8, index: u32, state: u16, flags: u8) -> Message {
    let mut head = vec![family, 0, 0, 0];
    head.extend(index.to_ne_bytes());
    head.extend(state.to_ne_bytes());
    head.extend([flags, 0]);
    let mode = if kind == NEW_NEIGHBOUR { CREATE | REPLACE } else { 0 };
    Message::new(kind, mode, &head)
}
