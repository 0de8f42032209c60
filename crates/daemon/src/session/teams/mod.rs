//! Teams: workspaces that are created together, send messages to each other, run the tasks they are sent, and are
//! destroyed together.
//!
//! ```text
//!  create ─▶ make (all workspaces or none) ─▶ mail ─▶ tasks (jobs in the VMs) ─▶ destroy
//!               └────────── cards (one note for each member, in the vault) ──────────┘
//! ```

mod board;
mod cards;
mod info;
mod inside;
mod mail;
mod make;
mod output;
mod recover;
mod tasks;

pub use info::{MemberInfo, RoleRequest, TeamInfo, TeamRequest};
pub use mail::{Received, Sent};
pub(crate) use recover::{find_unfinished, recover, resume_work};
