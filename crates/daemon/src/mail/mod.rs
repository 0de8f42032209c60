//! Mail of team members, kept apart from the ledger: messages, tasks and their results.
//!
//! ```text
//!  <data>/mail/<team>.<when it was made>/<role>.log
//! ```
//!
//! Every member has a file of its own ([`inbox`]), to which entries ([`entry`]) are appended in frames with checksums
//! ([`frame`]). What is in an inbox follows from reading its file from the beginning ([`contents`]). A message costs one
//! append and one sync; the file is rewritten when more than a third of it is of no use any more, and emptied when
//! nothing waits. So one inbox takes a bounded number of bytes, and neither a full inbox nor a damaged one is felt by
//! another.
//!
//! A crash may leave the last frame unfinished: nobody was told that it was written, so it is cut off. A file that is
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
