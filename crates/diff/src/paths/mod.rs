//! Comparison of two file systems by path.
//!
//! ```text
//! old tree ─┐                     ┌─ added: only in the new one
//!           ├─ walked together ───┼─ removed: only in the old one
//! new tree ─┘   name by name      └─ modified: in both, and compare says so
//! ```
//!
//! Both trees are walked at the same time, so that equal parts are read once and not kept in memory. An added or
//! removed directory is listed with everything in it.

mod compare;
mod options;
mod result;
mod sides;
mod walk;
mod watched;

pub use options::DiffOptions;
pub use result::{ChangedPath, Counts, DiffError, PathDiff};
pub use walk::diff_paths;
