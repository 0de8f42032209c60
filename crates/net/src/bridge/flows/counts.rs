//! The kernel's counts: our table for them, the share of each machine in it, and what was counted.

use std::io;
use std::net::Ipv4Addr;

use super::conntrack::Connections;
use super::flow::Flow;
use super::ledger::Done;
use crate::bridge::nft::{Count, Course, Family, Nftables};
use crate::bridge::render::{Ground, flows};

#[derive(Debug)]
pub(crate) struct Counts {
    nft: Nftables,
    connections: Connections,
    ground: Ground,
}

impl Counts {
    /// Makes the table. What an earlier daemon left of it goes, with what was counted for nobody.
    pub(crate) fn open(ground: &Ground) -> io::Result<Self> {
        let mut nft = Nftables::open()?;
        nft.replace(&[flows::table(ground)])?;
        Ok(Self { nft, connections: Connections::open()?, ground: ground.clone() })
    }

    pub(super) fn add(&mut self, short: &str, address: Ipv4Addr) -> io::Result<()> {
        let share = flows::share(&self.ground, short, address);
        self.nft.extend(&share.table, &share.maps)
    }

    pub(super) fn remove(&mut self, short: &str, address: Ipv4Addr) -> io::Result<()> {
        let share = flows::share(&self.ground, short, address);
        self.nft.shrink(&share.table, &share.maps)
    }

    pub(super) fn read(&mut self, short: &str, course: Course) -> io::Result<Vec<Count>> {
        self.nft.counts(Family::Inet, &flows::counts(short, course))
    }

    /// Counts no more what is over.
    pub(super) fn forget(&mut self, short: &str, done: &Done) {
        for (course, keys) in [(Course::Up, &done.up), (Course::Down, &done.down)] {
            let set = flows::counts(short, course);
            if self.nft.forget(Family::Inet, &set, keys).is_ok() {
                continue;
            }
            // One of them is not there; all together they go or stay.
            for key in keys {
                if let Err(error) = self.nft.forget(Family::Inet, &set, &[*key]) {
                    tracing::debug!(set, %error, "a count stays until it goes by itself");
                }
            }
        }
    }

    /// Has the kernel forget connections.
    pub(super) fn end(&mut self, opener: Ipv4Addr, flows: &[Flow]) {
        for flow in flows {
            if let Err(error) = self.connections.remove(opener, flow) {
                // The same for all of them.
                return tracing::debug!(%error, "the kernel keeps connections of a machine that is gone");
            }
        }
    }
}
