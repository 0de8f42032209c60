//! The gateway: the other end of every VM's network card.
//!
//! Each VM is alone on its wire, a socket on which its QEMU sends Ethernet frames. The gateway answers ARP for every
//! other address, so that all packets come to it, and decides about each of them:
//!
//! ```text
//!           ┌ wire ┐    ┌ ingress ┐  ┌─ outbound ── flow ──── host's TCP sockets
//! QEMU ═════╡read  ├───▶│spoofed? │──┼─ udp ──────────────── host's UDP sockets
//!           │      │    │where to?│  ├─ names, service ────── the resolver, the daemon
//!           │write │◀─┐ └─────────┘  ├─ switch ────────────── another VM
//!           └──────┘  └── link ◀─────┴─ forward ── flow ───── host's loopback listens
//! ```
//!
//! A connection is one task ([`flow`]) with a TCP stack of its own ([`stack`]). Everything is owned by tasks that end
//! when the [`Attachment`] is dropped.

mod attachment;
mod bucket;
mod counters;
mod flow;
mod frame;
mod host;
mod hub;
mod inbound;
mod ingress;
mod lifecycle;
mod link;
pub(crate) mod names;
mod outbound;
mod packet;
mod pool;
mod queues;
mod reply;
mod service;
mod socket;
mod stack;
mod switch;
mod table;
mod track;
mod udp;
mod vm;
mod wire;

pub use attachment::Attachment;
pub use counters::Counted;
pub use hub::{AttachError, Gateway};
