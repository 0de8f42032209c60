//! A VM's place on the gateway.

use std::net::Ipv4Addr;

/// Who a VM is. Whatever it sends in another's name is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The host name that other VMs may find it by: one label, in lower case. See
    /// [`Attachment::set_name`](super::Attachment::set_name).
    pub name: String,
    pub mac: [u8; 6],
    pub address: Ipv4Addr,
}
