//! The identity of a VM on the network: its name and addresses.

use std::net::Ipv4Addr;

/// The name and addresses of a VM. Frames that it sends with other addresses are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetIdentity {
    /// The host name that other VMs may find it by: one label, in lower case. See
    /// [`Attachment::set_name`](super::Attachment::set_name).
    pub name: String,
    pub mac: [u8; 6],
    pub address: Ipv4Addr,
}
