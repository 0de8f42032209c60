//! The resolver against a DNS server on this machine: what guests may ask, what they are told, what it opens.

mod guest;
mod policy;
mod server;
mod upstream;
