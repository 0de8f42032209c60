//! MCP over streamable HTTP, in front of any server that speaks JSON-RPC lines.
//!
//! ```text
//!  socket ── hyper ── head ── guard (Host, Origin, token) ── body ── eras ── post ── upstream ── lines ── MCP server
//!     └──── answer ◀── one JSON answer, or a stream of events ◀── exchange ◀───────────┘
//! ```
//!
//! This crate knows HTTP and the two eras of the protocol. In the older era a session begins with `initialize` and has
//! its own connection to the MCP server; in the stateless era each request is complete by itself, and all of them share
//! one connection. The crate does not interpret requests: that is left to the MCP server. A [`Front`] serves one
//! [`Backend`] on any stream; [`listen`] puts it on a TCP socket. [`serve_plain`] answers requests that are not MCP.

mod answer;
mod backend;
mod body;
mod connection;
mod eras;
mod exchange;
mod front;
mod guard;
mod head;
mod linger;
mod listen;
mod patient;
mod permits;
mod plain;
mod post;
mod refusal;
mod session;
mod settings;
mod token;
mod upstream;

pub use backend::Backend;
pub use front::Front;
pub use guard::Hosts;
pub use listen::listen;
pub use plain::{Plain, PlainAnswer, serve_plain};
pub use settings::Settings;
pub use token::{Token, TokenError, TokenHash};
