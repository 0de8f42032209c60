//! The jail in which QEMU and `qemu-img` run. It limits what a program can reach after its guest or a hostile file has
//! taken it over.
//!
//! ```text
//! Jail (which kind this host can have) ── Cell (what one program may see) ──▶ enter, in the child before exec
//! ```
//!
//! The jail has a root directory with the program, the system's libraries, QEMU's firmware, a few devices and the files
//! that the [`Cell`] names; everything else that the program needs is an inherited descriptor. The jail has no other
//! processes, no network, no other file systems and no privileges. If the daemon is root, every VM has a user of its
//! own; for an ordinary user a user namespace gives the same isolation. On hosts without user namespaces, [`landlock`]
//! refuses files instead of hiding them. In every kind of jail a [`filter`] refuses the system calls that would reach
//! further.

mod cell;
mod enter;
mod failure;
mod files;
mod filter;
mod kind;
mod landlock;
mod probe;
mod uid;

pub use cell::{Cell, View};
pub use files::{give_to, make_readable, readable_copy, take_back};
pub use kind::{Jail, JailError};
pub use probe::{find, gives_users, of_process};
pub use uid::uid_of;

pub(crate) use cell::Prepared;
pub(crate) use enter::{HELPER_DATA, enter};
pub(crate) use failure::{Failed, MESSAGE, Step};
