//! Arguments of tools: what each may be, how that is described to clients, and how it is parsed.
//!
//! One constant per parameter gives both its JSON Schema and its parser, so the two cannot disagree. A [`Reader`] takes
//! all parameters of a call before anything runs and reports every problem at once.
//!
//! `null` counts as left out. An integer may be written as a float without a fraction (`120.0`, `1e3`), because several
//! languages have no other numbers. A number in quotes is refused, because it may be a name.

mod any;
mod git;
mod lists;
mod names;
mod network;
mod param;
mod reader;
mod team;
mod values;
mod word;
mod words;

pub(crate) use any::Any;
pub(crate) use lists::{CommandSet, Commands, Tasks, VaultQueries, Workspaces};
pub(crate) use names::{GuestFile, Image, NewName, Prefix, Snapshot, Team, Workspace};
pub(crate) use network::{Policy, Ports};
pub(crate) use param::{Param, Parameter, Slot, input_schema};
pub(crate) use reader::{Implied, Invalid, Reader};
pub(crate) use team::Roles;
pub(crate) use values::{Choice, Env, FileMode, Flag, Integer, Text, Texts};
pub(crate) use word::Word;
