//! The test language for real VMs.
//!
//! ```no_run
//! use agentiso_testkit::TestHost;
//!
//! let host = TestHost::start();
//! let client = host.client();
//! let ws = client.workspace();
//! assert_eq!(ws.exec("echo hi").stdout, "hi\n");
//! ```
//!
//! A [`TestHost`] is a server of its own (state, sockets, daemon) over images and templates that all tests
//! share; a [`Client`] is an MCP client on a real `agentiso serve`; a [`TestWorkspace`] is a machine that one
//! client owns. When a host is dropped its daemon is stopped and anything left behind fails the test.

mod client;
mod host;
mod process;
mod skip;
mod snapshots;
mod user;
mod wait;
mod workspace;

pub use client::{Client, Pending, RpcReply, ToolResult};
pub use host::{HostOptions, TestHost, UNPRIVILEGED_CAPABILITIES};
pub use process::{Process, processes_mentioning};
pub use skip::{older_binary, record_skip, test_cache};
pub use wait::{LONG, eventually};
pub use workspace::{Output, TestWorkspace};
