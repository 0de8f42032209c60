//! Tests the resolver with a DNS server on this host: what guests may ask, what they receive, and which addresses that
//! opens.

mod guest;
mod policy;
mod server;
mod upstream;
