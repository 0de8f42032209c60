//! The edge to agents: MCP tools over the daemon.
//!
//! ```text
//!  lines ── transport ── rmcp ── server ── own ── args (all problems at once) ── tools/* ── agentiso_daemon::Session
//!                                   │       └───── resources, prompts, complete
//!                                   └───── call (progress, cancellation, panics) ── answer
//! ```
//!
//! One file per tool under `tools`; the table of them is `registry`; which of them a session offers is its
//! [`Profile`], and resources and prompts follow from that. rmcp is known to this crate only.

mod answer;
mod args;
mod call;
mod complete;
pub mod docs;
mod handler;
mod instructions;
mod methods;
mod nearest;
mod offer;
mod own;
mod profile;
mod progress;
mod prompts;
mod registry;
mod resources;
mod server;
mod tools;
mod transport;
mod truncate;

pub use handler::{Mcp, serve_offer};
pub use offer::{Asked, Offer, Part, Running};
pub use profile::{Profile, ProfileError};
pub use progress::Reporter;
