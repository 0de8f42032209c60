//! Process 1: mounts the first file systems, starts the agent, reaps processes, and restarts the agent if it dies.
//!
//! It is small because nothing restarts it. It shares its root directory with the agent, so when the agent changes the
//! root, it changes for both. If the image's own init is to run, process 1 starts a keeper, which restarts the agent in
//! its stead, and executes that init.

mod agent;
mod idle;
mod mounts;
mod reaper;

pub use reaper::{keep, run};
