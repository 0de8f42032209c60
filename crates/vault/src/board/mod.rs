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
//! Every change happens under the lock of the tasks' folder, so of many that claim a task exactly one gets it: threads,
//! sessions, and daemons that share a vault. People may edit the notes meanwhile; what they add stays.

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
