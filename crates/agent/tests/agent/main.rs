//! Tests of the client against the real agent, over sockets instead of a VM's port.

mod calls;
mod entropy;
mod exec;
mod files;
mod hostile;
mod jobs;
mod local;
mod resync;
mod support;
mod trees;
