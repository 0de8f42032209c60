//! The client against the real agent, over sockets instead of a machine's port.

mod calls;
mod exec;
mod files;
mod hostile;
mod jobs;
mod local;
mod resync;
mod stirred;
mod support;
mod trees;
