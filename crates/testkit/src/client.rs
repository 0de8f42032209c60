//! A simple MCP client: JSON lines over the pipes of `agentiso serve`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::Process;
use crate::wait::LONG;
use crate::workspace::TestWorkspace;

/// The messages that the reader thread has received: replies go to the waiting request, the rest is kept here.
#[derive(Debug, Default)]
struct Inbox {
    waiting: HashMap<u64, Sender<Value>>,
    /// Lines that answer no request of ours: notifications, and errors without an id.
    other: Vec<Value>,
    closed: bool,
}

#[derive(Debug)]
pub struct Client {
    child: Mutex<Child>,
    stdin: Mutex<Option<ChildStdin>>,
    inbox: Arc<Mutex<Inbox>>,
    next_id: AtomicU64,
    stderr: Arc<Mutex<Vec<u8>>>,
}

/// A request that was sent and not yet awaited.
#[derive(Debug)]
pub struct Pending {
    pub id: u64,
    what: String,
    reply: Receiver<Value>,
}

#[derive(Clone, Debug)]
pub enum RpcReply {
    Result(Value),
    Error { code: i64, message: String },
}

#[derive(Clone, Debug)]
pub struct ToolResult {
    pub text: String,
    pub structured: Value,
    pub is_error: bool,
}

impl Client {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("agentiso serve starts");
        let stdin = child.stdin.take();
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let reader_inbox = inbox.clone();
        std::thread::spawn(move || read_replies(stdout, &reader_inbox));
        let mut pipe = child.stderr.take().expect("stderr is piped");
        let log = stderr.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                log.lock().expect("no panic with the log held").extend_from_slice(&buffer[..n]);
            }
        });
        Self { child: Mutex::new(child), stdin: Mutex::new(stdin), inbox, next_id: AtomicU64::new(1), stderr }
    }

    pub fn initialize(&self) -> Value {
        let params = json!({
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "testkit", "version": "1"},
        });
        let reply = self.request("initialize", params).result();
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        reply
    }

    /// Writes one JSON value as a line.
    pub fn send(&self, message: &Value) {
        self.send_raw(format!("{message}\n").as_bytes());
    }

    /// Writes raw bytes. If `serve` has ended, this does not fail; the reply never comes.
    pub fn send_raw(&self, bytes: &[u8]) {
        let mut stdin = self.stdin.lock().expect("no panic with stdin held");
        if let Some(pipe) = stdin.as_mut() {
            let _ = pipe.write_all(bytes).and_then(|()| pipe.flush());
        }
    }

    pub fn request(&self, method: &str, params: Value) -> Pending {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = channel();
        {
            // A closed connection gets no reply: the sender is dropped, so that the wait ends at once.
            let mut inbox = self.inbox.lock().expect("no panic with the inbox held");
            if !inbox.closed {
                inbox.waiting.insert(id, sender);
            }
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        Pending { id, what: format!("{method} {}", brief(&params)), reply }
    }

    pub fn notify(&self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a tool call without waiting for its answer.
    pub fn start_tool(&self, name: &str, arguments: Value) -> Pending {
        self.request("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// Calls a tool that must succeed, and returns its progress reports as well.
    pub fn tool_with_progress(&self, name: &str, arguments: Value) -> (ToolResult, Vec<Value>) {
        let token = format!("{name}-{}", self.next_id.load(Ordering::Relaxed));
        let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": token}});
        let result = self.request("tools/call", params).tool();
        assert!(!result.is_error, "{name} {} failed: {}", brief(&arguments), result.text);
        let reports = self.unsolicited().into_iter().filter(|message| {
            message["method"] == "notifications/progress" && message["params"]["progressToken"] == token
        });
        (result, reports.map(|mut message| message["params"].take()).collect())
    }

    /// Calls a tool and returns its answer, error or not.
    pub fn try_tool(&self, name: &str, arguments: Value) -> ToolResult {
        self.start_tool(name, arguments).tool()
    }

    /// Calls a tool that must succeed.
    pub fn tool(&self, name: &str, arguments: Value) -> ToolResult {
        let result = self.try_tool(name, arguments.clone());
        assert!(!result.is_error, "{name} {} failed: {}", brief(&arguments), result.text);
        result
    }

    /// Calls a tool that must fail, and returns the error.
    pub fn tool_error(&self, name: &str, arguments: Value) -> ToolResult {
        let result = self.try_tool(name, arguments.clone());
        assert!(result.is_error, "{name} {} succeeded: {}", brief(&arguments), result.text);
        result
    }

    pub fn cancel(&self, pending: &Pending) {
        self.notify(
            "notifications/cancelled",
            json!({"requestId": pending.id, "reason": "the test says so"}),
        );
    }

    /// Creates a workspace of the host's default size.
    pub fn workspace(&self) -> TestWorkspace<'_> {
        self.workspace_with(json!({}))
    }

    pub fn workspace_with(&self, arguments: Value) -> TestWorkspace<'_> {
        let created = self.tool("workspace_create", arguments).json();
        TestWorkspace::new(self, created)
    }

    /// An existing workspace, by its name or id.
    pub fn existing(&self, wanted: &str) -> TestWorkspace<'_> {
        let info = self.tool("workspace_info", json!({"workspace_id": wanted})).json();
        TestWorkspace::new(self, info)
    }

    /// Messages that answered no request, oldest first.
    pub fn unsolicited(&self) -> Vec<Value> {
        self.inbox.lock().expect("no panic with the inbox held").other.clone()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().expect("no panic with the log held")).into_owned()
    }

    pub fn is_closed(&self) -> bool {
        self.inbox.lock().expect("no panic with the inbox held").closed
    }

    /// Closes stdin, as a client does in an orderly exit, and waits for the end of `serve`.
    pub fn hang_up(&self) -> std::process::ExitStatus {
        drop(self.stdin.lock().expect("no panic with stdin held").take());
        self.ends_within(LONG).unwrap_or_else(|| {
            self.kill();
            panic!("serve went on for {LONG:?} after its client had hung up; it said: {}", self.stderr());
        })
    }

    fn ends_within(&self, limit: Duration) -> Option<std::process::ExitStatus> {
        let mut child = self.child.lock().expect("no panic with the child held");
        if let Some(process) = Process::open(child.id() as i32)
            && !process.ends_within(limit)
        {
            return None;
        }
        Some(child.wait().expect("our own child"))
    }

    /// Kills `serve`.
    pub fn kill(&self) {
        let mut child = self.child.lock().expect("no panic with the child held");
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Ok(mut stdin) = self.stdin.lock() {
            drop(stdin.take());
        }
        if std::thread::panicking() {
            self.kill();
        } else {
            self.hang_up();
        }
    }
}

fn read_replies(stdout: BufReader<std::process::ChildStdout>, inbox: &Mutex<Inbox>) {
    for line in stdout.split(b'\n') {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_slice::<Value>(&line) else {
            panic!("not JSON on stdout: {}", String::from_utf8_lossy(&line));
        };
        let mut inbox = inbox.lock().expect("no panic with the inbox held");
        let waiting = message["id"].as_u64().filter(|_| message.get("method").is_none());
        match waiting.and_then(|id| inbox.waiting.remove(&id)) {
            Some(sender) => drop(sender.send(message)),
            None => inbox.other.push(message),
        }
    }
    let mut inbox = inbox.lock().expect("no panic with the inbox held");
    inbox.closed = true;
    inbox.waiting.clear();
}

impl Pending {
    pub fn wait(self) -> RpcReply {
        let what = self.what.clone();
        self.wait_for(LONG)
            .unwrap_or_else(|| panic!("{what}: no answer within {LONG:?}, or the server is gone"))
    }

    /// `None` if no answer comes in time, and at once when the connection ends.
    pub fn wait_for(&self, limit: Duration) -> Option<RpcReply> {
        let mut message = self.reply.recv_timeout(limit).ok()?;
        Some(match message.get_mut("error") {
            Some(error) => RpcReply::Error {
                code: error["code"].as_i64().expect("an error has a code"),
                message: error["message"].as_str().expect("an error has a message").to_owned(),
            },
            None => RpcReply::Result(message["result"].take()),
        })
    }

    pub fn result(self) -> Value {
        let what = self.what.clone();
        match self.wait() {
            RpcReply::Result(value) => value,
            RpcReply::Error { code, message } => panic!("{what}: error {code}: {message}"),
        }
    }

    pub fn tool(self) -> ToolResult {
        let what = self.what.clone();
        match self.wait() {
            RpcReply::Result(value) => ToolResult {
                text: value["content"][0]["text"].as_str().unwrap_or_default().to_owned(),
                is_error: value["isError"].as_bool().unwrap_or(false),
                structured: value["structuredContent"].clone(),
            },
            RpcReply::Error { code, message } => panic!("{what}: error {code}: {message}"),
        }
    }
}

impl ToolResult {
    /// The text, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn code(&self) -> &str {
        self.structured["code"].as_str().unwrap_or_else(|| panic!("no error code in {}", self.structured))
    }

    /// The error's text must contain each of these.
    #[track_caller]
    pub fn mentions(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(
                self.text.to_lowercase().contains(&part.to_lowercase()),
                "{part:?} is not in {:?}",
                self.text
            );
        }
        self
    }
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(200).collect()
}
