//! Commands: started, drained, timed, killed.
//!
//! What a command prints is read as fast as it comes and kept only up to a limit, so memory stays bounded and the
//! command is never held up by a full pipe. The process group of a command that nobody waits for is killed; one that is
//! to go on is a job, see [`crate::jobs`].

mod capture;
mod drain;
mod group;
mod output;
mod probe;
mod request;
mod run;
mod variables;

pub use capture::Capture;
pub use group::Graveyard;
pub use probe::{MAX_PROBE_MICROS, probe};
pub use request::{CheckedExec, RequestError, check, check_job};
pub use run::{ExecError, Outcome, Sink, run};
pub use variables::Variables;

pub(crate) use drain::drain;
pub(crate) use run::{DRAIN_GRACE, Started, read_outputs, start};
