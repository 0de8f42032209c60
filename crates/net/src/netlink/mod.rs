//! Netlink: asks the kernel for links, addresses and packet rules, without any other program.
//!
//! The kernel answers within the call, so nothing here waits for anything else.

mod message;
mod read;
mod socket;

pub(crate) use message::Message;
pub(crate) use read::{Attributes, Received};
pub(crate) use socket::{Netlink, Subsystem};
