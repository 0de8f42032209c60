//! The guest agent that this library carries, so that installing agentiso is copying one file.

use thiserror::Error;

/// The static guest binary; empty when the build was told to embed none.
pub static GUEST_AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agentiso-guest"));

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this build carries no guest agent (it was built with AGENTISO_GUEST_BINARY=none); build again without that variable"
)]
pub struct NoGuestAgent;

/// The embedded guest agent, or the reason there is none.
pub fn guest_agent() -> Result<&'static [u8], NoGuestAgent> {
    if GUEST_AGENT.is_empty() { Err(NoGuestAgent) } else { Ok(GUEST_AGENT) }
}
