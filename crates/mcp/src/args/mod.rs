//! Arguments of tools: what each may be, how that is described to clients, and how it is read.
//!
//! One constant per parameter gives both its JSON Schema and its parser, so the two cannot disagree. A
//! [`Reader`] takes all parameters of a call before anything runs and reports every problem at once.
//!
//! How values are taken: `null` counts as left out; an integer may be written as a float without a fraction
//! (`120.0`, `1e3`: several languages have no other numbers); a number in quotes is refused, because what looks
//! like one may be a name.

mod kinds;
mod param;
mod reader;

pub(crate) use kinds::{Choice, Env, FileMode, Flag, GuestFile, Image, Integer, NewName, Text, Workspace};
pub(crate) use param::{Slot, input_schema};
pub(crate) use reader::{Implied, Invalid, Reader};
