//! One task per workspace that alone changes it.
//!
//! Others send envelopes through a bounded queue and wait for the answer; whoever stops waiting does not stop
//! the work. [`task`] is the loop, [`birth`] makes a workspace or undoes it, [`recover`] finds it again after a
//! restart, [`steps`] are start, stop and destroy.

mod birth;
mod handle;
mod recover;
mod steps;
mod task;

pub(crate) use handle::{Handle, Live, Request};
pub(crate) use recover::{Recovery, plan};
pub(crate) use steps::STOP_GRACE;
pub(crate) use task::{spawn_create, spawn_recovered};
