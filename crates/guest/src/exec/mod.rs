//! Runs commands: starts them, reads their output, enforces their time limits and kills them.
//!
//! The output of a command is read as fast as it comes and kept only up to a limit, so memory stays bounded and a full
//! pipe never blocks the command. When the call of a command ends, its process group is killed. A command that goes on
//! after its call is a job, see [`crate::jobs`].

mod capture;
mod drain;
mod group;
mod output;
mod probe;
mod request;
mod run;
mod variables;

pub use capture::Capture;
pub use group::BackgroundTasks;
pub use probe::{MAX_PROBE_MICROS, probe};
pub use request::{CheckedExec, RequestError, check, check_job};
pub use run::{ExecError, Outcome, Sink, run};
pub use variables::Variables;

pub(crate) use drain::drain;
pub(crate) use run::{DRAIN_GRACE, Started, read_outputs, start};
