//! Tests the bridge in network namespaces: a host with the bridge, VMs that are real network stacks, and a server that
//! plays the internet. Without root the tests are skipped.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod flows;
mod guest;
mod hostile;
mod lifecycle;
mod namespace;
mod neighbours;
mod outside;
mod server;
mod service;
mod world;
