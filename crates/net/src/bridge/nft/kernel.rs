//! The kernel's tables: ours, and no others.

use std::io;

use super::encode;
use super::table::{Family, Set, Table};
use crate::netlink::{Netlink, Subsystem};

/// A socket through which our tables are written.
#[derive(Debug)]
pub(crate) struct Nftables(Netlink);

impl Nftables {
    pub(crate) fn open() -> io::Result<Self> {
        Netlink::open(Subsystem::Netfilter).map(Self)
    }

    /// Puts these tables in the place of ours, all at once or not at all.
    pub(crate) fn replace(&mut self, tables: &[Table]) -> io::Result<()> {
        self.transaction(tables.iter().flat_map(encode::replacement).collect())
    }

    /// Adds the elements to sets that are there.
    pub(crate) fn add(&mut self, family: Family, sets: &[Set]) -> io::Result<()> {
        match sets.iter().flat_map(|set| encode::more_elements(family, set)).collect::<Vec<_>>() {
            messages if messages.is_empty() => Ok(()),
            messages => self.transaction(messages),
        }
    }

    /// Removes our tables, whether there are any or not.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        self.transaction([Family::Ip, Family::Bridge].into_iter().flat_map(encode::removal).collect())
    }

    fn transaction(&mut self, messages: Vec<crate::netlink::Message>) -> io::Result<()> {
        let (begin, end) = encode::embrace();
        self.0.batch(begin, messages, end)
    }
}
