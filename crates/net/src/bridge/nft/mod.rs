//! nftables: tables as values, their text as `nft list` shows it, and how the kernel is given them.
//!
//! The text is for people and for tests. The kernel gets the same values through netlink, in one transaction, so no
//! program has to be installed and no moment exists at which half of the rules hold.

mod encode;
mod expressions;
mod kernel;
mod table;
mod terms;
mod text;
mod tuple;

pub(crate) use kernel::{Count, Nftables};
pub(crate) use table::{At, Chain, ChainKind, Element, Family, Set, SetKind, Table, Target};
pub(crate) use terms::{Action, Field, Match, Value};
pub(crate) use tuple::{Course, KEY, Tuple};
