//! The task board of a team: one note per task below `teams/<team>/tasks`, and an `INDEX.md` that shows them all.
//!
//! ```text
//!              claim            start             complete
//!  pending ───────────▶ claimed ─────▶ inprogress ────────▶ completed
//!     ▲                  │   │                                  ▲
//!     └──────────────────┘   └──────────────────────────────────┘            any ── fail ──▶ failed
//!          release                     complete
//! ```
//!
//! Every change holds the lock of the tasks' folder, so exactly one of several concurrent claims succeeds, across
//! threads, sessions, and daemons that share a vault. People may edit the notes meanwhile; their changes are kept.

mod error;
mod id;
mod index;
mod order;
mod store;
mod task;

pub use error::BoardError;
pub use id::TaskId;
pub use order::{available, is_ready, order};
pub use store::{Board, Broken, Tasks};
pub use task::{NewTask, Priority, Status, Task};
