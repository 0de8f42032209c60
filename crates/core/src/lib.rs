//! Domain types and decisions: ids, names, sizes, lifecycle admission, quotas, teams, configuration.
//!
//! Everything here is a function over values: no clock, no disk, no socket, no async runtime. The crates
//! around it (host, daemon, mcp) carry out the decisions.

pub mod address;
pub mod config;
pub mod env;
pub mod ids;
pub mod lifecycle;
pub mod memory;
pub mod names;
pub mod network;
pub mod paths;
pub mod pool;
pub mod quota;
pub mod rate;
pub mod resources;
pub mod space;
pub mod suggest;
pub mod team;
