//! The agent in a guest: init, commands, files, and the setup of the guest.
//!
//! ```text
//!   process 1: init          mounts, loads the first modules, reaps, restarts the agent
//!      └─ agent              serves the host's calls over the virtio-serial port
//!           └─ /bin/sh -c …  commands, each in a session of its own
//! ```
//!
//! The binary is static and needs nothing from the image. For tests, [`server::serve`] also runs on an ordinary host
//! over a socket; it then refuses everything that would change the system.

pub mod args;
pub mod console;
pub mod exec;
pub mod files;
pub mod init;
pub mod jobs;
pub mod port;
pub mod server;
pub mod service;
pub mod spawn;
pub mod system;
pub mod transport;

mod local;
mod watch;
