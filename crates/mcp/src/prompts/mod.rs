//! Prompts: workflows that a person can pick, worded for the tools of the session.
//!
//! Each prompt has a file. A prompt is offered if the session has all tools that it names.

mod build_environment;
mod parallel_hypotheses;
mod safe_experiment;
mod sandbox_review;
mod table;
mod words;

pub(crate) use table::{PROMPTS, complete, find, get, listed, offered};
