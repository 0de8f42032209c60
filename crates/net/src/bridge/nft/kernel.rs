//! Writes and reads our tables in the kernel, and no others.

use std::io;

use super::encode;
use super::table::{Family, Set, Table};
use super::tuple::KEY;
use crate::netlink::{Attributes, Netlink, Received, Subsystem};

/// A socket to the kernel's nftables.
#[derive(Debug)]
pub(crate) struct Nftables(Netlink);

impl Nftables {
    pub(crate) fn open() -> io::Result<Self> {
        Netlink::open(Subsystem::Netfilter).map(Self)
    }

    /// Replaces our tables by these, all at once or not at all.
    pub(crate) fn replace(&mut self, tables: &[Table]) -> io::Result<()> {
        self.transaction(tables.iter().flat_map(encode::replacement).collect())
    }

    /// Lets the kernel check a table without creating it.
    pub(crate) fn try_out(&mut self, table: &Table) -> io::Result<()> {
        let (begin, _) = encode::transaction_frame();
        self.0.try_out(begin, encode::replacement(table))
    }

    /// Adds the elements to existing sets.
    pub(crate) fn add(&mut self, family: Family, sets: &[Set]) -> io::Result<()> {
        match sets.iter().flat_map(|set| encode::more_elements(family, set)).collect::<Vec<_>>() {
            messages if messages.is_empty() => Ok(()),
            messages => self.transaction(messages),
        }
    }

    /// Adds the content of this table to the existing one, and elements to its maps.
    pub(crate) fn extend(&mut self, table: &Table, maps: &[Set]) -> io::Result<()> {
        let mut messages = encode::addition(table);
        messages.extend(maps.iter().flat_map(|map| encode::more_elements(table.family, map)));
        self.transaction(messages)
    }

    /// Removes what [`extend`](Self::extend) added.
    pub(crate) fn shrink(&mut self, table: &Table, maps: &[Set]) -> io::Result<()> {
        self.transaction(encode::subtraction(table, maps))
    }

    /// The counts in a set.
    pub(crate) fn counts(&mut self, family: Family, set: &str) -> io::Result<Vec<Count>> {
        let listed = self.0.list(encode::list_elements(family, set))?;
        Ok(listed.iter().flat_map(counts_in).collect())
    }

    /// Removes these keys from a set. All of them must exist.
    pub(crate) fn forget(&mut self, family: Family, set: &str, keys: &[[u8; KEY]]) -> io::Result<()> {
        match encode::remove_elements(family, set, keys) {
            messages if messages.is_empty() => Ok(()),
            messages => self.transaction(messages),
        }
    }

    /// Removes our tables, if there are any.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        if let Err(error) = self.transaction(encode::removal(Family::Inet)) {
            tracing::debug!(%error, "cannot remove the table of counts; a kernel without such tables has none");
        }
        self.transaction([Family::Ip, Family::Bridge].into_iter().flat_map(encode::removal).collect())
    }

    fn transaction(&mut self, messages: Vec<crate::netlink::Message>) -> io::Result<()> {
        let (begin, end) = encode::transaction_frame();
        self.0.batch(begin, messages, end)
    }
}

/// Packets of one key, and their bytes including the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) key: [u8; KEY],
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

fn counts_in(message: &Received) -> Vec<Count> {
    /// The length of `struct nfgenmsg`, and the attribute with the elements.
    const HEAD: usize = 4;
    const ELEMENTS: u16 = 3;
    let elements = message.attributes(HEAD).get(ELEMENTS).unwrap_or_default();
    Attributes::new(elements).all().filter_map(|(_, element)| count(Attributes::new(element))).collect()
}

fn count(element: Attributes<'_>) -> Option<Count> {
    const ELEMENT_KEY: u16 = 1;
    const ELEMENT_EXPRESSION: u16 = 7;
    let key = element.nested(ELEMENT_KEY)?.get(1)?.try_into().ok()?;
    let counter = element.nested(ELEMENT_EXPRESSION)?.nested(2)?;
    let number = |kind: u16| Some(u64::from_be_bytes(counter.get(kind)?.try_into().ok()?));
    Some(Count { key, bytes: number(1)?, packets: number(2)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Message;
    use proptest::prelude::*;

    /// A message as the kernel sends it.
    fn received(message: Message) -> Received {
        Received::all(&message.finish(1, 0)).remove(0)
    }

    #[test]
    fn malformed_counts_are_left_out() {
        let mut message = Message::new(encode::NEW_ELEMENTS, 0, &[1, 0, 0, 0]);
        message.nest(3, |list| {
            for length in [KEY, KEY - 1] {
                list.nest(1, |element| {
                    element.nest(1, |key| {
                        key.bytes(1, &vec![7; length]);
                    });
                    element.nest(7, |expression| {
                        expression.text(1, "counter").nest(2, |counter| {
                            counter.be64(1, 1000).be64(2, 3);
                        });
                    });
                });
            }
            list.nest(1, |element| {
                element.nest(1, |key| {
                    key.bytes(1, &[8; KEY]);
                });
            });
        });
        assert_eq!(counts_in(&received(message)), [Count { key: [7; KEY], packets: 3, bytes: 1000 }]);
    }

    proptest! {
        #[test]
        fn count_reader_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let message = received(Message::new(encode::NEW_ELEMENTS, 0, &bytes));
            let mut wrapped = Message::new(encode::NEW_ELEMENTS, 0, &[1, 0, 0, 0]);
            wrapped.nest(3, |list| { list.bytes(1, &bytes); });
            prop_assert!(counts_in(&message).len() <= bytes.len());
            prop_assert!(counts_in(&received(wrapped)).len() <= 1);
        }
    }
}
