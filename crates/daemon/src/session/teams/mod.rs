//! Teams: machines that are made together, write to each other, carry out what they are sent, and go together.
//!
//! ```text
//!  create ─▶ make (all machines or none) ─▶ mail ─▶ tasks (jobs in the machines) ─▶ destroy
//!               └───────── cards (what each member is and does, among the notes) ─────┘
//! ```

mod board;
mod cards;
mod error;
mod info;
mod inside;
mod mail;
mod make;
mod output;
mod recover;
mod tasks;

pub use error::TeamError;
pub use info::{MemberInfo, RoleRequest, TeamInfo, TeamRequest};
pub use mail::{Received, Sent};
pub(crate) use recover::{look, recover, take_up};
