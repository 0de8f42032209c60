//! Commands: started, drained, timed, killed.
//!
//! What a command prints is read as fast as it comes and kept only up to a limit, so memory stays bounded and the
//! command is never held up by a full pipe. The process group of a command that nobody waits for is killed.

mod capture;
mod drain;
mod group;
mod output;
mod probe;
mod request;
mod run;

pub use capture::Capture;
pub use group::Graveyard;
pub use probe::{MAX_PROBE_MICROS, probe};
pub use request::{CheckedExec, RequestError, check};
pub use run::{ExecError, Outcome, Sink, run};
