//! Decides whether a flow may pass. Each VM has one [`Guard`]: its policy, the names its addresses were resolved from,
//! and the host's own addresses.

mod bindings;
mod guard;
mod host;
mod judge;
mod verdict;

#[cfg(test)]
mod tests;

pub(crate) use bindings::GRACE;
pub use guard::Guard;
pub use host::HostAddresses;
pub use verdict::{Refusal, RefusalCode, Transport, Verdict};
