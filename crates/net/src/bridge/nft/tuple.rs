//! The key under which a packet is counted: its flow as seen by the opener, and properties of the packet that its count
//! must know.

use std::fmt::{self, Display, Formatter};

use super::expressions::{expression, load, value};
use super::terms::Field;
use crate::netlink::Message;

/// The first register of four bytes. It is where the first of the large ones begins.
const FIRST: u32 = 8;

/// Mask for two bytes of a TCP header: the header length in the highest four bits; SYN, RST and FIN in the lowest
/// three.
pub(crate) const TCP_FLAGS_MASK: [u8; 2] = [0xf0, 0x07];

/// Size of a key: the other side's address, the guest's port, the other side's port, the protocol and the masked TCP
/// bytes, in four bytes each.
pub(crate) const KEY: usize = 20;

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the side that opened the flow.
    Up,
    Down,
}

/// The key under which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) direction: Direction,
    /// Whether there is a TCP header.
    pub(crate) is_tcp: bool,
}

impl Tuple {
    fn fields(self) -> [Field; 4] {
        match self.direction {
            Direction::Up => [Field::TargetAddress, Field::SourcePort, Field::TargetPort, Field::Protocol],
            Direction::Down => [Field::SourceAddress, Field::TargetPort, Field::SourcePort, Field::Protocol],
        }
    }

    /// Loads the key into consecutive registers.
    pub(super) fn load(self, list: &mut Message) {
        for (register, field) in (FIRST..).zip(self.fields()) {
            load(list, field, register);
        }
        let last = FIRST + 4;
        if self.is_tcp {
            load(list, Field::TcpFlags, last);
            expression(list, "bitwise", |data| {
                data.be32(1, last).be32(2, last).be32(3, 4);
                value(data, 4, &[TCP_FLAGS_MASK[0], TCP_FLAGS_MASK[1], 0, 0]);
                value(data, 5, &[0; 4]);
            });
        } else {
            expression(list, "immediate", |data| {
                data.be32(1, last);
                value(data, 2, &[0; 4]);
            });
        }
    }
}

impl Display for Tuple {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for field in self.fields() {
            write!(f, "{field} . ")?;
        }
        match self.is_tcp {
            true => write!(f, "{} & 0x{:02x}{:02x}", Field::TcpFlags, TCP_FLAGS_MASK[0], TCP_FLAGS_MASK[1]),
            false => f.write_str("0x0000"),
        }
    }
}
