//! One task per workspace that alone changes it.
//!
//! Others send requests through a bounded queue and wait for the answer; whoever stops waiting does not stop
//! the work. [`task`] is the loop, [`birth`] makes a workspace or undoes it, [`recover`] decides what becomes
//! of it after a restart, [`reach`] finds its machine again, [`steps`] are start, stop and destroy, [`snapshots`] what
//! is done with those, [`setup`] the commands of a fork, [`import`] what is special about a workspace that comes from a
//! file.

mod birth;
mod handle;
mod import;
mod reach;
mod recover;
mod setup;
mod snapshots;
mod steps;
mod suspend;
mod task;

pub(crate) use birth::{Delivery, ForkSeed, Seed};
pub(crate) use handle::{Handle, Live, Reply, Request};
pub(crate) use import::ImportSeed;
pub(crate) use recover::take_up;
pub(crate) use steps::STOP_GRACE;
pub(crate) use suspend::LOOK_AGAIN;
pub(crate) use task::spawn_create;
