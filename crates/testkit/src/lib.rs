//! The test kit for real VMs: hosts, clients and workspaces with the calls that tests make.
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
//! A [`TestHost`] has its own state, sockets and daemon over images and templates that all tests share. A [`Client`] is
//! an MCP client on a real `agentiso serve`. A [`TestWorkspace`] is a workspace that one client owns. When a host is
//! dropped, its daemon is stopped and anything left behind fails the test.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

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
