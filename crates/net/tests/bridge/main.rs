//! The bridge in network namespaces of the test's own: a host with the bridge, machines at it that are real network
//! stacks, and a server that plays the internet. Without root they are skipped.

mod flows;
mod guest;
mod hostile;
mod life;
mod namespace;
mod neighbours;
mod outside;
mod server;
mod service;
mod world;
