//! Mail of team members, kept separate from the ledger: messages, tasks and their results.
//!
//! ```text
//!  <data>/mail/<team>.<creation time>/<role>.log
//! ```
//!
//! Every member has a file of its own ([`inbox`]), to which entries ([`entry`]) are appended in frames with checksums
//! ([`frame`]). Reading the file from its beginning yields what is in the inbox ([`contents`]). A message costs one
//! append and one sync. The file is rewritten when more than a third of it is obsolete, and emptied when nothing waits.
//! So one inbox takes a bounded number of bytes, and a full or damaged inbox does not affect any other.
//!
//! A crash may leave the last frame unfinished. No call has reported it as written, so it is cut off. A file that is
//! damaged in another way is copied aside, and everything before the damage is used.

mod contents;
mod entry;
mod frame;
mod inbox;
mod log;
mod store;

pub use inbox::{Begun, Inbox, Taken};
pub(crate) use store::{DeliverError, Delivered, MailStore, Slot, deliver};
pub use store::{MailCounts, MailStoreError, count};
