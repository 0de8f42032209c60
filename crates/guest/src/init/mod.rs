//! Process 1: makes the first file systems, starts the agent, reaps, and starts the agent again if it dies.
//!
//! It is this small because nothing restarts it. It shares its root directory with the agent, so when the agent
//! changes the root it changes for both. Where the image's own init shall run, it starts a keeper in its stead and
//! executes that init.

mod agent;
mod mounts;
mod reaper;
mod rest;

pub use reaper::{keep, run};
