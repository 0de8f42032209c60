//! The daemon's facts about its workspaces and teams, written to disk after every lifecycle change, twice: in the
//! ledger and in the directories themselves.
//!
//! [`schema`] is the stored form, [`parse`] reads it entry by entry, [`file`] is `state.json`. [`description`] is
//! the file in each directory that describes it, [`survey`] reads all of them at start, [`gather`] decides what
//! exists, and [`quarantine`] holds directories that are not understood. [`store`] lets many tasks save at once
//! with few writes. Reading without a daemon ([`read`], [`survey()`]) is for `agentiso status` and `agentiso
//! check`.

#[cfg(test)]
mod bounds_tests;
mod description;
mod error;
mod file;
mod gather;
mod parse;
mod quarantine;
mod schema;
mod store;
mod survey;
#[cfg(test)]
mod tests;
mod whole_file;

pub use description::{
    Described, DescribedOwner, DescribedWorkspace, Description, Holds, Marker, TeamDescription, TeamKey,
    read_team, read_workspace,
};
pub(crate) use description::{keep_damaged, remove_marker, team_directory, write_workspace};
pub use error::LedgerError;
pub use file::{Found, read, write};
pub(crate) use gather::{Gathered, gather};
pub(crate) use quarantine::{KeptContent, KeptTeam, KeptWorkspace, Quarantine};
pub use schema::{
    Counters, LedgerDocument, Mended, SCHEMA_VERSION, StoredImage, StoredSession, StoredSnapshot,
    StoredWorkspace,
};
pub(crate) use store::{Store, Written};
pub use survey::{FoundTeam, FoundWorkspace, Survey, survey};
pub(crate) use whole_file::{keep_aside, remove_temporary};
