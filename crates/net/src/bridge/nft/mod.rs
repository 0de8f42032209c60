//! nftables: tables as values, their text as `nft list` shows it, and their transfer to the kernel.
//!
//! The text is for people and for tests. The kernel gets the same values through netlink in one transaction, so no
//! program has to be installed and the rules are never half written.

mod encode;
mod expressions;
mod kernel;
mod table;
mod terms;
mod text;
mod tuple;

pub(crate) use kernel::{Count, Nftables};
pub(crate) use table::{Chain, ChainKind, Element, Family, HookPoint, Set, SetKind, Table, Target};
pub(crate) use terms::{Action, Field, Match, Value};
pub(crate) use tuple::{Direction, KEY, Tuple};
