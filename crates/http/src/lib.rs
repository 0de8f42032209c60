//! MCP over streamable HTTP, in front of whatever speaks JSON-RPC lines.
//!
//! ```text
//!  socket ── incoming ── head ── guard (Host, Origin, token) ── eras ── post ── upstream ── lines ── MCP server
//!     └───── outgoing ◀── one JSON answer, or a stream of events ◀─────────────────┘
//! ```
//!
//! This crate knows HTTP and the two eras of the protocol: sessions that begin with `initialize` and have a connection
//! to the server each, and requests that stand for themselves, which share one. What a request means is the server's to
//! say. A [`Front`] serves one [`Backend`], whoever connects; [`listen`] puts it on a TCP socket.
//!
//! HTTP/1.1 is read by hand, because there is little of it: one path, two methods, bodies of known or chunked length.
//! What is written in any unusual way is refused, not interpreted.

mod backend;
mod connection;
mod eras;
mod front;
mod guard;
mod head;
mod incoming;
mod listen;
mod outgoing;
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
pub use settings::Settings;
pub use token::{Token, TokenError, TokenHash};
