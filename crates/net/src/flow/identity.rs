//! The identity of a VM on the network: its name and addresses.

use std::net::Ipv4Addr;

/// Locally administered; "agiso" in its last five bytes.
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0x61, 0x67, 0x69, 0x73, 0x6f];

/// The name and addresses of a VM. Frames that it sends with other addresses are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetIdentity {
    /// The host name that other VMs may find it by: one label, in lower case.
    pub name: String,
    pub mac: [u8; 6],
    pub address: Ipv4Addr,
}
