//! Jobs: commands that go on when the call that started them is over.
//!
//! ```text
//!   start --> Pending --publish--> in the table, by its id --> ended, still there
//!                |                        |
//!                +-- dropped: killed      +-- killed on request
//! ```
//!
//! Each job has a task that reads its pipes, sends it signals and reaps it. These tasks belong to the table, not to a
//! connection, so a host that hangs up and comes back finds its jobs; and so does the host of a restored machine, because
//! all of this is memory. What is kept of their output is bounded for each stream and for all jobs together.

mod job;
mod table;
mod watch;

pub use table::{JobError, Jobs, Pending};
