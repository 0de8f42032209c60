//! A running VM: its agent, its end, and its logs.
//!
//! Dropping a [`Vm`] releases it; QEMU runs on and can be attached to again.

mod exit;
mod guest;
mod handle;
mod link;
mod logs;
mod recorder;
pub(crate) mod room;

pub use exit::{ExitCause, ExitReason};
pub use handle::{PssError, Vm};

pub(crate) use handle::Parts;
pub(crate) use recorder::{Recorder, Source, make_pipe};
