//! The kernel's counts: creates the table for them, adds and removes each VM's part of it, and reads the counts.

use std::io;
use std::net::Ipv4Addr;

use super::conntrack::Connections;
use super::flow::Flow;
use super::flow_table::Done;
use crate::bridge::nft::{Count, Direction, Family, Nftables};
use crate::bridge::render::{BridgeLayout, flows};

#[derive(Debug)]
pub(crate) struct Counts {
    nft: Nftables,
    connections: Connections,
    layout: BridgeLayout,
}

impl Counts {
    /// Creates the table. A table that an earlier daemon left is removed, with its counts.
    pub(crate) fn open(layout: &BridgeLayout) -> io::Result<Self> {
        let mut nft = Nftables::open()?;
        nft.replace(&[flows::table(layout)])?;
        Ok(Self { nft, connections: Connections::open()?, layout: layout.clone() })
    }

    pub(super) fn add(&mut self, short: &str, address: Ipv4Addr) -> io::Result<()> {
        let share = flows::share(&self.layout, short, address);
        self.nft.extend(&share.table, &share.maps)
    }

    pub(super) fn remove(&mut self, short: &str, address: Ipv4Addr) -> io::Result<()> {
        let share = flows::share(&self.layout, short, address);
        self.nft.shrink(&share.table, &share.maps)
    }

    pub(super) fn read(&mut self, short: &str, direction: Direction) -> io::Result<Vec<Count>> {
        self.nft.counts(Family::Inet, &flows::counts(short, direction))
    }

    /// Removes the keys of finished flows.
    pub(super) fn forget(&mut self, short: &str, done: &Done) {
        for (direction, keys) in [(Direction::Up, &done.up), (Direction::Down, &done.down)] {
            let set = flows::counts(short, direction);
            if self.nft.forget(Family::Inet, &set, keys).is_ok() {
                continue;
            }
            // One of them is missing, and a batch applies as a whole or not at all.
            for key in keys {
                if let Err(error) = self.nft.forget(Family::Inet, &set, &[*key]) {
                    tracing::debug!(set, %error, "cannot remove a count; it will expire");
                }
            }
        }
    }

    /// Removes connections from the kernel's connection tracking.
    pub(super) fn end(&mut self, opener: Ipv4Addr, flows: &[Flow]) {
        for flow in flows {
            if let Err(error) = self.connections.remove(opener, flow) {
                // The same error would come for all of them.
                return tracing::debug!(%error, "cannot remove the connections of a VM that is gone from the kernel");
            }
        }
    }
}
