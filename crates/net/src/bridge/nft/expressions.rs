//! Encodes rules as lists of the kernel's expressions, which load fields into registers and compare them.

use std::time::Duration;

use super::terms::{Action, Field, Match};
use crate::netlink::Message;

/// The attribute of a list's element, in all lists.
pub(super) const ITEM: u16 = 1;

/// A value or a verdict inside data.
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;

/// The verdict register, the first data register, and the second four bytes of that.
const REGISTER_VERDICT: u32 = 0;
const REGISTER: u32 = 1;
const REGISTER_SECOND: u32 = 9;

const JUMP: i32 = -3;
pub(super) const GOTO: i32 = -4;
const RETURN: i32 = -5;
const DROP: i32 = 0;
pub(super) const ACCEPT: i32 = 1;

pub(super) fn expression(list: &mut Message, name: &str, inside: impl FnOnce(&mut Message)) {
    list.nest(ITEM, |item| {
        item.text(1, name).nest(2, inside);
    });
}

pub(super) fn value(message: &mut Message, kind: u16, bytes: &[u8]) {
    message.nest(kind, |data| {
        data.bytes(DATA_VALUE, bytes);
    });
}

pub(super) fn verdict(message: &mut Message, code: i32, chain: Option<&str>) {
    message.nest(DATA_VERDICT, |verdict| {
        verdict.bytes(1, &code.to_be_bytes());
        if let Some(chain) = chain {
            verdict.text(2, chain);
        }
    });
}

pub(super) fn load(list: &mut Message, field: Field, register: u32) {
    /// The header that an offset refers to: link, network or transport.
    const LINK: u32 = 0;
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    let mut payload = |base: u32, offset: u32, length: u32| {
        expression(list, "payload", |data| {
            data.be32(1, register).be32(2, base).be32(3, offset).be32(4, length);
        });
    };
    match field {
        Field::EtherSource => payload(LINK, 6, 6),
        Field::EtherType => payload(LINK, 12, 2),
        Field::ArpFormat => payload(NETWORK, 0, 6),
        Field::ArpSenderMac => payload(NETWORK, 8, 6),
        Field::ArpSenderAddress => payload(NETWORK, 14, 4),
        Field::SourceAddress => payload(NETWORK, 12, 4),
        Field::TargetAddress => payload(NETWORK, 16, 4),
        Field::SourcePort => payload(TRANSPORT, 0, 2),
        Field::TargetPort => payload(TRANSPORT, 2, 2),
        Field::IcmpType => payload(TRANSPORT, 0, 1),
        Field::TcpFlags => payload(TRANSPORT, 12, 2),
        Field::InInterface => meta(list, 6, register),
        Field::OutInterface => meta(list, 7, register),
        Field::Family => meta(list, 15, register),
        Field::Protocol => meta(list, 16, register),
        Field::Direction => expression(list, "ct", |data| {
            data.be32(1, register).be32(2, 1);
        }),
        Field::State => expression(list, "ct", |data| {
            data.be32(1, register).be32(2, 0);
        }),
        Field::TargetKind => expression(list, "fib", |data| {
            data.be32(1, register).be32(2, 3).be32(3, 2);
        }),
    }
}

fn meta(list: &mut Message, key: u32, register: u32) {
    expression(list, "meta", |data| {
        data.be32(1, register).be32(2, key);
    });
}

fn compare(list: &mut Message, unequal: bool, bytes: &[u8]) {
    expression(list, "cmp", |data| {
        data.be32(1, REGISTER).be32(2, u32::from(unequal));
        value(data, 3, bytes);
    });
}

pub(super) fn encode_match(list: &mut Message, condition: &Match) {
    match condition {
        Match::Is(field, wanted) => {
            load(list, *field, REGISTER);
            compare(list, false, &wanted.bytes);
        }
        Match::IsNot(field, unwanted) => {
            load(list, *field, REGISTER);
            compare(list, true, &unwanted.bytes);
        }
        Match::Within(field, network) => {
            load(list, *field, REGISTER);
            expression(list, "bitwise", |data| {
                data.be32(1, REGISTER).be32(2, REGISTER).be32(3, 4);
                value(data, 4, &network.mask().octets());
                value(data, 5, &[0; 4]);
            });
            compare(list, false, &network.address().octets());
        }
        Match::Among(field, set) => {
            load(list, *field, REGISTER);
            look_up(list, set, false);
        }
        Match::PairAmong(first, second, set) => {
            load(list, *first, REGISTER);
            load(list, *second, REGISTER_SECOND);
            look_up(list, set, false);
        }
        Match::NotCounted(tuple, set) => {
            tuple.load(list);
            // The last attribute is the flag to invert the lookup.
            expression(list, "lookup", |data| {
                data.text(1, set).be32(2, REGISTER).be32(5, 1);
            });
        }
        Match::Counted { tuple, set, forgotten } => {
            /// Adds missing elements.
            const UPDATE: u32 = 1;
            tuple.load(list);
            expression(list, "dynset", |data| {
                data.text(1, set).be32(3, UPDATE).be32(4, REGISTER);
                data.be64(6, milliseconds(*forgotten)).nest(7, |counter| {
                    counter.text(1, "counter").nest(2, |_| {});
                });
            });
        }
        Match::AtMost { packets } => limit(list, *packets, u32::try_from(*packets).unwrap_or(u32::MAX), 0, 0),
        // The flag inverts it: above the limit rather than up to it.
        Match::TooMany { connections } => expression(list, "connlimit", |data| {
            data.be32(1, *connections).be32(2, 1);
        }),
        Match::Beyond { bytes, burst } => limit(list, *bytes, *burst, 1, 1),
        Match::TooFast { frames, burst } => limit(list, *frames, *burst, 0, 1),
    }
}

/// `kind`: packets or bytes. `flags`: whether the limit must be exceeded.
fn limit(list: &mut Message, rate: u64, burst: u32, kind: u32, flags: u32) {
    expression(list, "limit", |data| {
        data.be64(1, rate).be64(2, 1).be32(3, burst).be32(4, kind).be32(5, flags);
    });
}

fn look_up(list: &mut Message, set: &str, is_map: bool) {
    expression(list, "lookup", |data| {
        data.text(1, set).be32(2, REGISTER);
        if is_map {
            data.be32(3, REGISTER_VERDICT);
        }
    });
}

pub(super) fn encode_action(list: &mut Message, action: &Action) {
    match action {
        Action::Accept => decide(list, ACCEPT, None),
        Action::Drop => decide(list, DROP, None),
        Action::Jump(chain) => decide(list, JUMP, Some(chain)),
        Action::Goto(chain) => decide(list, GOTO, Some(chain)),
        Action::Return => decide(list, RETURN, None),
        Action::Follow(field, map) => {
            load(list, *field, REGISTER);
            look_up(list, map, true);
        }
        Action::Reset => reject(list, 1, 0),
        // ICMP's code 13: communication administratively prohibited.
        Action::Prohibit => reject(list, 0, 13),
        Action::Log { group } => expression(list, "log", |data| {
            data.bytes(1, &group.to_be_bytes());
        }),
        Action::Masquerade => expression(list, "masq", |_| {}),
        Action::Redirect { port } => {
            expression(list, "immediate", |data| {
                data.be32(1, REGISTER);
                value(data, 2, &port.to_be_bytes());
            });
            expression(list, "redir", |data| {
                data.be32(1, REGISTER);
            });
        }
    }
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn decide(list: &mut Message, code: i32, chain: Option<&str>) {
    expression(list, "immediate", |data| {
        data.be32(1, REGISTER_VERDICT).nest(2, |inner| verdict(inner, code, chain));
    });
}

fn reject(list: &mut Message, kind: u32, code: u8) {
    expression(list, "reject", |data| {
        data.be32(1, kind).byte(2, code);
    });
}
