//! JSON-RPC lines over a byte stream, as rmcp's transport.
//!
//! ```text
//!  socket ──▶ LineReader ──▶ parse ──▶ LineTransport::receive ──▶ rmcp
//!  socket ◀── writer task ◀── bounded queue ◀── LineTransport::send / own replies
//! ```
//!
//! rmcp has a transport of its own. It drops lines that are too long and lines that are not JSON without an answer,
//! ends the session on a notification that comes before the handshake, and writes its own error replies from a future
//! that may be dropped in the middle of a line. A client behind a pipe sees each of these as a hang, so this transport
//! answers instead.

mod id_scan;
mod inbox;
mod lines;
mod outbox;
mod parse;

pub(crate) use inbox::LineTransport;
pub(crate) use lines::MAX_LINE;
