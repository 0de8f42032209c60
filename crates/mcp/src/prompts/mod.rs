//! Prompts: ways of working that people can pick, with the tools that this session has.
//!
//! One file per prompt. A prompt is offered where all tools are that it sends a model to.

mod build_environment;
mod parallel_hypotheses;
mod safe_experiment;
mod sandbox_review;
mod table;
mod words;

pub(crate) use table::{PROMPTS, complete, find, get, listed, offered};
