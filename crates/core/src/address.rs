//! Assigns one IPv4 address of the subnet to each workspace.
//!
//! Addresses are handed out in a ring, so that the address of a workspace that was just destroyed is the last
//! one to be reused.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::WorkspaceId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    pub gateway: Ipv4Addr,
    pub prefix: u8,
}

impl Subnet {
    fn mask(&self) -> u32 {
        u32::MAX << (32 - u32::from(self.prefix))
    }

    /// The addresses that guests may have, in ascending order: all but network, gateway and broadcast.
    fn hosts(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let network = u32::from(self.gateway) & self.mask();
        let broadcast = network | !self.mask();
        let gateway = u32::from(self.gateway);
        (network + 1..broadcast).filter(move |a| *a != gateway).map(Ipv4Addr::from)
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        u32::from(address) & self.mask() == u32::from(self.gateway) & self.mask()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no free address in the subnet of {gateway}/{prefix}; destroy a workspace or lower network.subnet_prefix"
)]
pub struct SubnetFull {
    pub gateway: Ipv4Addr,
    pub prefix: u8,
}

#[derive(Clone, Debug)]
pub struct AddressPool {
    subnet: Subnet,
    taken: BTreeSet<Ipv4Addr>,
    last: Option<Ipv4Addr>,
}

impl AddressPool {
    pub fn new(subnet: Subnet) -> Self {
        Self { subnet, taken: BTreeSet::new(), last: None }
    }

    pub fn subnet(&self) -> Subnet {
        self.subnet
    }

    /// Marks an address as taken that belongs to a workspace of the ledger. False if it is outside the subnet or taken
    /// already.
    pub fn claim(&mut self, address: Ipv4Addr) -> bool {
        let ok = self.subnet.contains(address) && self.taken.insert(address);
        if ok {
            self.last = self.last.max(Some(address));
        }
        ok
    }

    pub fn take(&mut self) -> Result<Ipv4Addr, SubnetFull> {
        let after = |a: &Ipv4Addr| self.last.is_none_or(|last| *a > last);
        let free = |a: &Ipv4Addr| !self.taken.contains(a);
        let found = self
            .subnet
            .hosts()
            .find(|a| after(a) && free(a))
            .or_else(|| self.subnet.hosts().find(free))
            .ok_or(SubnetFull { gateway: self.subnet.gateway, prefix: self.subnet.prefix })?;
        self.taken.insert(found);
        self.last = Some(found);
        Ok(found)
    }

    /// The address given last. A later run passes it to [`Self::resume_after`].
    pub fn last(&self) -> Option<Ipv4Addr> {
        self.last
    }

    /// Continues after the last address of an earlier run, so that a restart does not begin the ring anew.
    pub fn resume_after(&mut self, address: Ipv4Addr) {
        if self.subnet.contains(address) {
            self.last = Some(address);
        }
    }

    pub fn release(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address);
    }
}

/// The MAC address of a workspace: locally administered, unicast, derived from its id.
pub fn mac_for(id: &WorkspaceId) -> [u8; 6] {
    let b = id.as_uuid().as_bytes();
    [0x02, b[0], b[1], b[2], b[3], b[4]]
}

pub fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(prefix: u8) -> AddressPool {
        AddressPool::new(Subnet { gateway: Ipv4Addr::new(10, 42, 0, 1), prefix })
    }

    #[test]
    fn addresses_are_given_from_dot_two_up() {
        let mut pool = pool(16);
        assert_eq!(pool.take().unwrap(), Ipv4Addr::new(10, 42, 0, 2));
        assert_eq!(pool.take().unwrap(), Ipv4Addr::new(10, 42, 0, 3));
    }

    #[test]
    fn released_address_is_reused_last() {
        let mut pool = pool(29);
        let first = pool.take().unwrap();
        pool.release(first);
        let rest: Vec<_> = (0..5).map(|_| pool.take().unwrap()).collect();
        assert_eq!(rest.last(), Some(&first));
        assert!(pool.take().is_err());
    }

    #[test]
    fn foreign_or_taken_address_cannot_be_claimed() {
        let mut pool = pool(24);
        assert!(pool.claim(Ipv4Addr::new(10, 42, 0, 9)));
        assert!(!pool.claim(Ipv4Addr::new(10, 42, 0, 9)));
        assert!(!pool.claim(Ipv4Addr::new(10, 43, 0, 9)));
    }

    #[test]
    fn mac_is_local_and_unicast() {
        let mac = mac_for(&WorkspaceId::random());
        assert_eq!(mac[0] & 0b11, 0b10);
        assert_eq!(format_mac([2, 0, 0xab, 1, 2, 3]), "02:00:ab:01:02:03");
    }
}
