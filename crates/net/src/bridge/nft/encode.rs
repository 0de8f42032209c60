//! Encodes tables as messages to the kernel. The numbers are those of `linux/netfilter/nf_tables.h`.

use std::net::Ipv4Addr;

use super::expressions::{ACCEPT, GOTO, ITEM, encode_action, encode_match, milliseconds, value, verdict};
use super::table::{Chain, ChainKind, Element, Family, HookPoint, NAME, Rule, Set, SetKind, Table};
use super::terms::INTERFACE_NAME;
use super::tuple::KEY;
use crate::netlink::Message;

/// The subsystem, in the high byte of every message's kind.
const NFTABLES: u16 = 10;

const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const DELETE_CHAIN: u16 = 5;
const NEW_RULE: u16 = 6;
const NEW_SET: u16 = 9;
const DELETE_SET: u16 = 11;
pub(super) const NEW_ELEMENTS: u16 = 12;
const GET_ELEMENTS: u16 = 13;
const DELETE_ELEMENTS: u16 = 14;

/// `NLM_F_CREATE`; rules also have `NLM_F_APPEND`, to keep the order in which they are sent.
const CREATE: u16 = 0x400;
/// `NLM_F_EXCL`: an existing element is an error.
const EXCLUSIVE: u16 = 0x200;
const APPEND: u16 = 0x800;

const SET_IS_MAP: u32 = 8;
const SET_HAS_TIMEOUT: u32 = 0x10;
const SET_IS_DYNAMIC: u32 = 0x20;
/// `NFT_DATA_VERDICT`: a map to verdicts.
const VERDICTS: u32 = 0xffff_ff00;

/// The numbers of `nft` for types of keys; the kernel only stores them.
const TYPE_ADDRESS: u32 = 7;
const TYPE_PORT: u32 = 13;
const TYPE_PROTOCOL: u32 = 12;
const TYPE_MARK: u32 = 19;
const TYPE_INTERFACE: u32 = 41;
/// A key of two types, six bits each.
const TYPE_ENDPOINT: u32 = TYPE_ADDRESS << 6 | TYPE_PORT;
/// A key of five types.
const TYPE_TUPLE: u32 = ((TYPE_ENDPOINT << 6 | TYPE_PORT) << 6 | TYPE_PROTOCOL) << 6 | TYPE_MARK;

/// An attribute holds at most 64 KiB.
const ELEMENTS_PER_MESSAGE: usize = 500;

pub(super) fn message(kind: u16, flags: u16, family: Family) -> Message {
    let family = match family {
        Family::Ip => 2,
        Family::Bridge => 7,
        Family::Inet => 1,
    };
    Message::new(NFTABLES << 8 | kind, flags, &[family, 0, 0, 0])
}

/// The messages that begin and end a transaction.
pub(super) fn transaction_frame() -> (Message, Message) {
    let head = [0, 0, 0, NFTABLES as u8];
    (Message::new(0x10, 0, &head), Message::new(0x11, 0, &head))
}

/// The messages that delete a table with everything in it. They create it first, so that this also succeeds if there is
/// none.
pub(super) fn removal(family: Family) -> Vec<Message> {
    let mut make = message(NEW_TABLE, CREATE, family);
    make.text(1, NAME);
    let mut delete = message(DELETE_TABLE, 0, family);
    delete.text(1, NAME);
    vec![make, delete]
}

/// The messages that replace a table with everything in it.
pub(super) fn replacement(table: &Table) -> Vec<Message> {
    let family = table.family;
    let mut messages = removal(family);
    let mut make = message(NEW_TABLE, CREATE, family);
    make.text(1, NAME);
    messages.push(make);
    messages.extend(addition(table));
    messages
}

/// The messages that add the content of this table to an existing one.
pub(super) fn addition(table: &Table) -> Vec<Message> {
    let family = table.family;
    let mut messages = Vec::new();
    // Rules look up sets, and the elements of maps name chains.
    messages.extend((1..).zip(&table.sets).map(|(id, set)| new_set(family, id, set)));
    messages.extend(table.chains.iter().map(|chain| new_chain(family, chain)));
    messages.extend(table.sets.iter().flat_map(|set| elements(family, set, CREATE)));
    let rules = table.chains.iter().flat_map(|chain| chain.rules.iter().map(|rule| (&chain.name, rule)));
    messages.extend(rules.map(|(chain, rule)| new_rule(family, chain, rule)));
    messages
}

fn new_set(family: Family, id: u32, set: &Set) -> Message {
    let (kind, length, is_map) = match &set.kind {
        SetKind::Ports(_) => (TYPE_PORT, 2, false),
        SetKind::Addresses(_) => (TYPE_ADDRESS, 4, false),
        SetKind::Endpoints(_) => (TYPE_ENDPOINT, 8, false),
        SetKind::ByAddress(_) => (TYPE_ADDRESS, 4, true),
        SetKind::ByInterface(_) => (TYPE_INTERFACE, INTERFACE_NAME as u32, true),
        SetKind::Counts { .. } => (TYPE_TUPLE, KEY as u32, false),
    };
    let mut flags = if set.timed { SET_HAS_TIMEOUT } else { 0 } | if is_map { SET_IS_MAP } else { 0 };
    if let SetKind::Counts { .. } = set.kind {
        flags |= SET_IS_DYNAMIC;
    }
    let mut message = message(NEW_SET, CREATE, family);
    message.text(1, NAME).text(2, &set.name);
    message.be32(3, flags);
    message.be32(4, kind).be32(5, length);
    if is_map {
        message.be32(6, VERDICTS).be32(7, 0);
    }
    if let SetKind::Counts { most } = set.kind {
        message.nest(9, |description| {
            description.be32(1, most);
        });
    }
    message.be32(10, id);
    message
}

/// The messages that add elements to a set. An element that exists would keep its old time to live, so it is an error,
/// after which the caller writes all rules again.
pub(super) fn more_elements(family: Family, set: &Set) -> Vec<Message> {
    elements(family, set, CREATE | EXCLUSIVE)
}

/// The messages that add a set's elements.
fn elements(family: Family, set: &Set, flags: u16) -> Vec<Message> {
    elements_as(NEW_ELEMENTS, family, set, flags)
}

fn elements_as(kind: u16, family: Family, set: &Set, flags: u16) -> Vec<Message> {
    let address = |address: Ipv4Addr| address.octets().to_vec();
    type Entry<'a> = (Vec<u8>, Option<&'a str>, Option<&'a Element>);
    let entries: Vec<Entry<'_>> = match &set.kind {
        SetKind::Ports(ports) => ports.iter().map(|port| (port.to_be_bytes().to_vec(), None, None)).collect(),
        SetKind::Addresses(elements) => {
            elements.iter().map(|element| (address(element.address), None, Some(element))).collect()
        }
        SetKind::Endpoints(elements) => elements
            .iter()
            .map(|element| {
                let port = [&element.port.to_be_bytes()[..], &[0, 0]].concat();
                ([address(element.address), port].concat(), None, Some(element))
            })
            .collect(),
        SetKind::ByAddress(elements) => {
            elements.iter().map(|(key, target)| (address(*key), Some(target.0.as_str()), None)).collect()
        }
        SetKind::ByInterface(elements) => elements
            .iter()
            .map(|(name, target)| {
                let mut key = name.as_bytes().to_vec();
                key.resize(INTERFACE_NAME, 0);
                (key, Some(target.0.as_str()), None)
            })
            .collect(),
        SetKind::Counts { .. } => Vec::new(),
    };
    let chunks = entries.chunks(ELEMENTS_PER_MESSAGE);
    chunks
        .map(|chunk| {
            let mut message = message(kind, flags, family);
            message.text(1, NAME).text(2, &set.name);
            message.nest(3, |list| {
                for (key, target, element) in chunk {
                    list.nest(ITEM, |item| {
                        value(item, 1, key);
                        if let Some(target) = target {
                            item.nest(2, |data| verdict(data, GOTO, Some(target)));
                        }
                        if let Some(left) = element.and_then(|element| element.left) {
                            item.be64(4, milliseconds(left));
                        }
                    });
                }
            });
            message
        })
        .collect()
}

/// The messages that remove what [`addition`] added to a table, and the elements of `maps` that lead there.
pub(super) fn subtraction(table: &Table, maps: &[Set]) -> Vec<Message> {
    let family = table.family;
    let named = |kind: u16, attribute: u16, name: &str| {
        let mut message = message(kind, 0, family);
        message.text(1, NAME).text(attribute, name);
        message
    };
    let mut messages: Vec<_> =
        maps.iter().flat_map(|map| elements_as(DELETE_ELEMENTS, family, map, 0)).collect();
    // A chain's rules are deleted with it, and they are what refers to the sets.
    messages.extend(table.chains.iter().map(|chain| named(DELETE_CHAIN, 3, &chain.name)));
    messages.extend(table.sets.iter().map(|set| named(DELETE_SET, 2, &set.name)));
    messages
}

/// The message that requests all elements of a set.
pub(super) fn list_elements(family: Family, set: &str) -> Message {
    let mut message = message(GET_ELEMENTS, 0, family);
    message.text(1, NAME).text(2, set);
    message
}

/// The messages that remove keys from a set.
pub(super) fn remove_elements(family: Family, set: &str, keys: &[[u8; KEY]]) -> Vec<Message> {
    let chunks = keys.chunks(ELEMENTS_PER_MESSAGE);
    chunks
        .map(|chunk| {
            let mut message = message(DELETE_ELEMENTS, 0, family);
            message.text(1, NAME).text(2, set);
            message.nest(3, |list| {
                for key in chunk {
                    list.nest(ITEM, |item| value(item, 1, key));
                }
            });
            message
        })
        .collect()
}

fn new_chain(family: Family, chain: &Chain) -> Message {
    let mut message = message(NEW_CHAIN, CREATE, family);
    message.text(1, NAME).text(3, &chain.name);
    if let Some(hook) = chain.hook {
        let number = match hook.at {
            HookPoint::Prerouting => 0,
            HookPoint::Forward => 2,
            HookPoint::Output => 3,
            HookPoint::Postrouting => 4,
        };
        message.nest(4, |inner| {
            inner.be32(1, number).bytes(2, &hook.priority.to_be_bytes());
        });
        message.be32(5, ACCEPT as u32);
        message.text(
            7,
            match hook.kind {
                ChainKind::Filter => "filter",
                ChainKind::Nat => "nat",
            },
        );
    }
    message
}

fn new_rule(family: Family, chain: &str, rule: &Rule) -> Message {
    let mut message = message(NEW_RULE, CREATE | APPEND, family);
    message.text(1, NAME).text(2, chain);
    message.nest(4, |list| {
        for condition in &rule.matches {
            encode_match(list, condition);
        }
        encode_action(list, &rule.action);
    });
    message
}
