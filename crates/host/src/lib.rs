//! Under construction.

pub mod agent;
