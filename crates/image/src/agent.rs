//! The guest agent, embedded in this library so that agentiso is installed by copying one file.

use thiserror::Error;

/// The static guest binary; empty if the build was told to embed none.
pub static GUEST_AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agentiso-guest"));

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "this build contains no guest agent (it was built with AGENTISO_GUEST_BINARY=none); build again without that variable"
)]
pub struct NoGuestAgent;

/// The embedded guest agent, or an error if there is none.
pub fn guest_agent() -> Result<&'static [u8], NoGuestAgent> {
    if GUEST_AGENT.is_empty() { Err(NoGuestAgent) } else { Ok(GUEST_AGENT) }
}
