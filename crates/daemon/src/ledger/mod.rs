//! The ledger: what the daemon knows about its workspaces, on disk after every lifecycle change.
//!
//! [`schema`] is the stored form, [`file`] reads and replaces the file, [`store`] lets many tasks save at once
//! with few writes. Reading the file without a daemon ([`read`]) is for `agentiso status`.

mod file;
mod schema;
mod store;

pub(crate) use file::keep_aside;
pub use file::{LedgerError, Loaded, load, read, write};
pub use schema::{
    Counters, LedgerDocument, SCHEMA_VERSION, StoredImage, StoredSession, StoredSnapshot, StoredWorkspace,
};
pub(crate) use store::Store;
