//! Netlink: how the kernel is asked for links, addresses and packet rules, without any program in between.
//!
//! The answers come within the call, so nothing here waits for anybody but the kernel.

mod message;
mod read;
mod socket;

pub(crate) use message::Message;
pub(crate) use read::{Attributes, Received};
pub(crate) use socket::{Netlink, Subsystem};
