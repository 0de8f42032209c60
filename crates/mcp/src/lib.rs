//! MCP tools over the daemon: the interface to AI clients.
//!
//! ```text
//!  lines ── transport ── rmcp ── server ── session_offer ── args (all problems at once) ── tools/* ── daemon
//!                                   │            └───── resources, prompts, complete
//!                                   └───── call (progress, cancellation, panics) ── answer
//! ```
//!
//! Each tool has a file under `tools`; `registry` is the table of all tools. The [`Profile`] of a session chooses which
//! of them it offers, and resources and prompts follow from that. Only this crate uses rmcp.

mod answer;
mod args;
mod call;
mod complete;
pub mod docs;
mod handler;
mod hint;
mod instructions;
mod methods;
mod nearest;
mod offer;
mod profile;
mod progress;
mod prompts;
mod registry;
mod resources;
mod server;
mod session_offer;
mod tools;
mod transport;
mod truncate;

pub use handler::{Mcp, serve_offer};
pub use offer::{Asked, Offer, Part, Running};
pub use profile::{Profile, ProfileError};
pub use progress::Reporter;
