//! Hints: what a model can do about a failure, with the tools that its session offers.
//!
//! [`text`] holds the wording, [`errors`] decides what to say about each error of the engine.

mod errors;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use errors::of;
pub(crate) use text::Hint;
