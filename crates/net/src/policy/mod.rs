//! Policy: decides whether a flow or a lookup of one VM may pass. Nothing here touches a socket.
//!
//! ```text
//! sniff ── the host that a connection names ──▶ rules ──▶ allowed by a rule, or refused with the reason
//! ```
//!
//! Each VM has one [`Guard`], which knows its policy, the names its addresses were resolved from, and the host's own
//! addresses. Bytes of the guest that cannot be understood count as a connection without a name, never as an error.
//! Policy does not hold bytes back and does not end flows: [`flow`](crate::flow) does.

mod rules;
pub mod sniff;

pub(crate) use rules::GRACE;
pub use rules::{Guard, HostAddresses, Refusal, RefusalCode, Transport, Verdict};
