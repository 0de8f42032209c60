//! The vault: notes of clients on the host, as files below one directory that people and other programs edit too.
//!
//! ```text
//!  Vault ─┬─ notes (read, write, rename, frontmatter, tags, replace) ── replace (no edit is lost) ── locked, lease, fresh
//!         ├─ knowledge ── search, list ── walk (threads)                                                 │
//!         └─ board (tasks of a team) ────────────────────────────────────────────────────────────────────┤
//!                                                                        root (nothing outside the vault) ┘
//! ```
//!
//! All functions block, and every wait has a limit. This crate knows nothing of VMs, sessions or protocols.

pub mod board;
mod error;
mod fresh;
pub mod frontmatter;
mod knowledge;
mod lease;
mod lines;
mod list;
mod locked;
mod notes;
mod path;
mod pattern;
mod replace;
#[cfg(test)]
mod replace_tests;
mod replacement;
mod root;
mod search;
mod settings;
mod tags;
mod walk;

pub use error::VaultError;
pub use knowledge::{MAX_KNOWLEDGE, Question};
pub use list::{Entry, Listing, RecentFile, Stats};
pub use notes::{Vault, WriteMode};
pub use path::{FolderPath, MAX_PATH_LEN, NotePath, PathError};
pub use pattern::{MAX_QUERY, Pattern};
pub use replacement::{MAX_OLD, Replacement};
pub use root::MAX_NOTE;
pub use search::{Hit, Hits, MAX_HITS, Query};
pub use settings::Settings;
pub use tags::{Tag, TagError};
