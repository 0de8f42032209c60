//! MCP over streamable HTTP, in front of whatever speaks JSON-RPC lines.
//!
//! ```text
//!  socket ── hyper ── head ── guard (Host, Origin, token) ── body ── eras ── post ── upstream ── lines ── MCP server
//!     └──── answer ◀── one JSON answer, or a stream of events ◀── exchange ◀───────────┘
//! ```
//!
//! This crate knows HTTP and the two eras of the protocol: sessions that begin with `initialize` and have a connection
//! to the server each, and requests that stand for themselves, which share one. What a request means is the server's to
//! say. A [`Front`] serves one [`Backend`], whoever connects; [`listen`] puts it on a TCP socket. [`serve_plain`] answers
//! requests that are no MCP. Other servers may want a [`Patient`] stream as well.

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
mod plain;
mod post;
mod refusal;
mod session;
mod settings;
mod token;
mod turn;
mod upstream;

pub use backend::Backend;
pub use front::Front;
pub use guard::Hosts;
pub use listen::listen;
pub use patient::Patient;
pub use plain::{Plain, PlainAnswer, serve_plain};
pub use settings::Settings;
pub use token::{Token, TokenError, TokenHash};
