//! A client that speaks JSON-RPC lines, and a daemon with fake VMs for it.

#![allow(dead_code, reason = "each test binary uses a part of it")]

mod disk;
mod fake;
mod guest;
mod jobs;
pub(crate) mod local;
pub(crate) mod teams;
pub(crate) mod web;

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::config::{Config, UserDirs};
use agentiso_daemon::{Daemon, McpHandler, McpOptions, Session, SessionKind};
pub(crate) use fake::FakeVms;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

/// Longer than any answer takes, even on a busy host; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    read: BufReader<OwnedReadHalf>,
    write: Option<OwnedWriteHalf>,
    server: JoinHandle<()>,
    next_id: u64,
}

impl Client {
    /// A session that has sent nothing yet.
    pub(crate) fn connect(session: Session, tools: &str, read_only: bool) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let options = McpOptions { tools: Some(tools.to_owned()), read_only };
        let server = tokio::spawn(agentiso_mcp::Mcp::new("full").serve(session, options, theirs));
        let (read, write) = ours.into_split();
        Self { read: BufReader::new(read), write: Some(write), server, next_id: 0 }
    }

    /// A session after its handshake.
    pub(crate) async fn initialized(session: Session, tools: &str, read_only: bool) -> Self {
        let mut client = Self::connect(session, tools, read_only);
        let answer = client.initialize("2024-11-05").await;
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
        client
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = self.request("initialize", Some(params)).await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await;
        answer
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let write = self.write.as_mut().expect("an open connection");
        // One write for line and line feed, so that a request is never split by chance.
        let line = format!("{line}\n");
        tokio::time::timeout(PATIENCE, write.write_all(line.as_bytes()))
            .await
            .expect("no hang")
            .expect("a reader");
    }

    /// Sends and receives at once: a server may answer while a long line is still being sent, and must not wait for a
    /// client that does not read.
    pub(crate) async fn send_and_receive(&mut self, line: &str) -> Value {
        let mut write = self.write.take().expect("an open connection");
        let line = format!("{line}\n");
        let sending = tokio::spawn(async move {
            write.write_all(line.as_bytes()).await.expect("a reader");
            write
        });
        let answer = self.receive().await;
        self.write = Some(tokio::time::timeout(PATIENCE, sending).await.expect("no hang").expect("no panic"));
        answer
    }

    pub(crate) async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.receive_text().await).expect("a line of JSON")
    }

    pub(crate) async fn receive_text(&mut self) -> String {
        let mut line = String::new();
        let read =
            tokio::time::timeout(PATIENCE, self.read.read_line(&mut line)).await.expect("an answer in time");
        assert!(read.expect("a readable stream") > 0, "the server hung up");
        line
    }

    /// Everything until the server closes its side.
    pub(crate) async fn drain(&mut self) -> Vec<Value> {
        self.write = None;
        let mut answers = Vec::new();
        loop {
            let mut line = String::new();
            let read =
                tokio::time::timeout(PATIENCE, self.read.read_line(&mut line)).await.expect("an end in time");
            if read.expect("a readable stream") == 0 {
                return answers;
            }
            answers.push(serde_json::from_str(&line).expect("a line of JSON"));
        }
    }

    pub(crate) async fn request(&mut self, method: &str, params: Option<Value>) -> Value {
        self.next_id += 1;
        let mut request = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method});
        if let Some(params) = params {
            request["params"] = params;
        }
        self.send(&request.to_string()).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], self.next_id, "{answer}");
        answer
    }

    /// Sends a request; returns whether a certain notification came before its answer.
    pub(crate) async fn request_until(&mut self, method: &str, notification: &Value) -> bool {
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method}).to_string()).await;
        let mut heard = false;
        loop {
            let line = self.receive().await;
            if line["id"] == self.next_id {
                return heard;
            }
            assert_eq!(&line, notification);
            heard = true;
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", Some(json!({"name": tool, "arguments": arguments}))).await;
        answer["result"].clone()
    }

    /// Disconnects and waits until the server's side has ended.
    pub(crate) async fn close(mut self) {
        self.write = None;
        drop(self.read);
        tokio::time::timeout(PATIENCE, self.server).await.expect("an end in time").expect("no panic");
    }
}

/// The `_meta` of a stateless request.
pub(crate) fn stateless_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A daemon on a directory of its own, with VMs that exist in memory only.
pub(crate) struct World {
    daemon: Daemon,
    pub(crate) vms: Arc<FakeVms>,
    directory: tempfile::TempDir,
    config: Config,
}

pub(crate) async fn world() -> World {
    world_with("[rate_limit]\nenabled = false\n").await
}

pub(crate) async fn world_with(more: &str) -> World {
    let directory = tempfile::tempdir().expect("a directory");
    let vault = directory.path().join("vault");
    std::fs::create_dir(&vault).expect("a vault");
    let more = format!("{more}[vault]\nenabled = true\npath = \"{}\"\n", vault.display());
    world_in(directory, &more).await
}

/// A world without a vault.
pub(crate) async fn world_without_vault() -> World {
    world_in(tempfile::tempdir().expect("a directory"), "[rate_limit]\nenabled = false\n").await
}

async fn world_in(directory: tempfile::TempDir, more: &str) -> World {
    let text = format!(
        "[server]\nstate_file = \"{}/state.json\"\n[pool]\nenabled = false\n{more}",
        directory.path().display()
    );
    let dirs = UserDirs { uid: 1000, home: directory.path().into(), state_home: None, runtime_dir: None };
    let config = Config::parse(&text, &dirs).expect("a valid configuration");
    let vms = Arc::new(FakeVms::default());
    let daemon = Daemon::open_with(config.clone(), vms.clone()).await.expect("a daemon");
    World { daemon, vms, directory, config }
}

impl World {
    /// The directory of the notes.
    pub(crate) fn vault(&self) -> std::path::PathBuf {
        self.directory.path().join("vault")
    }

    pub(crate) fn state_file(&self) -> std::path::PathBuf {
        self.directory.path().join("state.json")
    }

    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon.clone()
    }

    pub(crate) fn session(&self) -> Session {
        self.daemon.open_session(SessionKind::Client)
    }

    /// A daemon that is started after this one has shut down. No client may be connected.
    pub(crate) async fn restarted(self) -> Self {
        let Self { daemon, vms, directory, config } = self;
        daemon.shutdown().await;
        let daemon = Daemon::open_with(config.clone(), vms.clone()).await.expect("another daemon");
        Self { daemon, vms, directory, config }
    }

    /// A session of the host's shell.
    pub(crate) fn shell(&self) -> Session {
        self.daemon.open_session(SessionKind::Shell)
    }
}
