//! The jail in which QEMU and `qemu-img` run: what a program that its guest, or a hostile file, has taken over can reach.
//!
//! ```text
//! Jail (which kind this host can have) ── Cell (what one program may see) ──▶ enter, in the child before exec
//! ```
//!
//! In the jail there is a root directory with the program, the system's libraries, QEMU's firmware, a few devices and the
//! files that are named in the [`Cell`]; everything else that the program needs is a descriptor that it is given. It has
//! no processes, no network, no other file systems and no privileges. For root every machine has a user of its own; for an
//! ordinary user a user namespace makes the same possible. Where there are none, [`landlock`] refuses files instead of
//! hiding them. In all of them a [`filter`] refuses the system calls that would reach further.

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
pub use kind::{Jail, JailError};
pub use probe::{find, gives_users, of_process};
pub use uid::uid_of;

pub(crate) use cell::Prepared;
pub(crate) use enter::{HELPER_DATA, enter};
pub(crate) use failure::{Failed, MESSAGE, Step};
pub(crate) use files::{give_to, make_readable, readable_copy, take_back};
