//! Which flow a packet belongs to, as who opened it sees it, and what of the packet its count must know besides.

use std::fmt::{self, Display, Formatter};

use super::expressions::{expression, load, value};
use super::terms::Field;
use crate::netlink::Message;

/// The first of the registers of four bytes. It is where the first of the large ones begins.
const FIRST: u32 = 8;

/// How far a TCP head reaches, and whether it opens or ends a connection: the length in its highest four bits; SYN, RST
/// and FIN in the lowest three.
pub(crate) const SIGNS: [u8; 2] = [0xf0, 0x07];

/// Bytes of a key: the other side's address, the guest's port, the other side's port, the protocol and the signs, in four
/// bytes each.
pub(crate) const KEY: usize = 20;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// From who opened the flow.
    Up,
    Down,
}

/// The key under which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) course: Course,
    /// Whether there is a TCP head to look into.
    pub(crate) is_tcp: bool,
}

impl Tuple {
    fn fields(self) -> [Field; 4] {
        match self.course {
            Course::Up => [Field::TargetAddress, Field::SourcePort, Field::TargetPort, Field::Protocol],
            Course::Down => [Field::SourceAddress, Field::TargetPort, Field::SourcePort, Field::Protocol],
        }
    }

    /// Loads the key into the registers from the first one on.
    pub(super) fn load(self, list: &mut Message) {
        for (register, field) in (FIRST..).zip(self.fields()) {
            load(list, field, register);
        }
        let last = FIRST + 4;
        if self.is_tcp {
            load(list, Field::TcpSigns, last);
            expression(list, "bitwise", |data| {
                data.be32(1, last).be32(2, last).be32(3, 4);
                value(data, 4, &[SIGNS[0], SIGNS[1], 0, 0]);
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
            true => write!(f, "{} & 0x{:02x}{:02x}", Field::TcpSigns, SIGNS[0], SIGNS[1]),
            false => f.write_str("0x0000"),
        }
    }
}
