//! Jobs: commands that go on after the call that started them was answered.
//!
//! ```text
//!   start --> Pending --publish--> in the table, by its id --> ended, still there
//!                |                        |
//!                +-- dropped: killed      +-- killed on request
//! ```
//!
//! Each job has a task that reads its pipes, sends it signals and reaps it. These tasks belong to the table, not to a
//! connection, so a host that hangs up and connects again finds its jobs. After a restore with memory they are there
//! too, because all of this is memory. The kept output is bounded for each stream and for all jobs together.

mod job;
mod table;
mod watch;

pub use table::{JobError, Jobs, Pending};
