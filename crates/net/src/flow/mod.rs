//! The part of carrying one connection, or its datagrams, that both backends share, and the VM that it belongs to.
//!
//! ```text
//! guest ── gate ── dialer ── server        a connection leaves once the policy allows what it says
//!            └──── account ── log          both ends of it are recorded
//! host ─── forward ──▶ guest               a port of the host's loopback that leads into the guest
//! guest ── service                         a service of the daemon at the gateway's address
//! ```
//!
//! Frames, packets and bytes are carried by the backends: [`gateway`](crate::gateway) and [`bridge`](crate::bridge).

pub(crate) mod account;
pub(crate) mod budget;
mod dialer;
pub(crate) mod forward;
pub(crate) mod gate;
mod identity;
pub(crate) mod limits;
pub mod log;
pub(crate) mod names;
pub(crate) mod service;
mod settings;
pub(crate) mod task_group;

pub use dialer::{Dialer, HostSockets};
pub use forward::{Ending, Forward, ForwardError};
pub use identity::{GATEWAY_MAC, NetIdentity};
pub use limits::Limits;
pub use service::{Duplex, Service};
pub use settings::Settings;
