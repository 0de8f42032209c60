//! Tests the gateway with a guest that is a TCP/IP stack of its own and servers on the loopback.
//!
//! Nothing leaves the host: the dialer of the tests maps addresses that look public to ports of the loopback.

mod forward;
mod frames;
mod guest;
mod hostile;
mod lifecycle;
mod policy;
mod service;
mod tcp;
mod udp;
mod vms;
mod world;
