//! One task per workspace that alone changes it.
//!
//! Others send requests through a bounded queue and wait for the answer; a caller that stops waiting does not stop
//! the work. [`task`] is the loop, [`create`] creates a workspace or undoes that, [`recover`] decides what happens to
//! it after a restart, [`reach`] finds its VM again, [`steps`] are start, stop and destroy, [`snapshots`] the
//! operations on snapshots, [`setup`] the commands of a fork, [`import`] the special part of a workspace that comes
//! from a file.

mod create;
mod import;
mod reach;
mod recover;
mod setup;
mod snapshots;
mod steps;
mod suspend;
mod task;

pub(crate) use create::{Delivery, ForkSeed, Seed};
pub(crate) use import::ImportSeed;
pub(crate) use recover::take_up;
pub(crate) use steps::STOP_GRACE;
pub(crate) use task::spawn_create;
