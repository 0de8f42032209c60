//! Programs that tests run in a guest: connection attempts with their outcome and duration, servers, and load.

mod background;
mod frames;

use agentiso_testkit::{LONG, TestWorkspace, eventually};
use serde_json::{Value, json};

pub use background::Background;
pub use frames::{AttackSetup, Capture};

/// A refused connection must fail within this many seconds, as measured in the guest on a busy host.
pub const AT_ONCE: f64 = 2.0;

const PROBE: &str = "/root/probe.py";

/// The outcome of one connection attempt: a word such as `refused`, or the data that came back.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub what: String,
    pub result: String,
    pub seconds: f64,
}

impl Attempt {
    #[track_caller]
    pub fn is(&self, result: &str) -> &Self {
        assert_eq!(self.result, result, "{self:?}");
        self
    }

    /// Asserts that the attempt ended with one of these results, and before any timeout.
    #[track_caller]
    pub fn fails_at_once(&self, results: &[&str]) -> &Self {
        assert!(results.contains(&self.result.as_str()), "{self:?} is none of {results:?}");
        assert!(self.seconds < AT_ONCE, "{self:?}");
        self
    }

    #[track_caller]
    pub fn is_refused(&self) -> &Self {
        self.fails_at_once(&["refused"])
    }
}

/// Makes several attempts from within a guest, one after the other. Each is `[kind, arguments…]`, as described in
/// `probe.py`.
pub fn try_all(ws: &TestWorkspace<'_>, attempts: Value) -> Vec<Attempt> {
    ws.write(PROBE, include_str!("probe.py"));
    ws.write("/root/attempts", &attempts.to_string());
    let said = ws.sh(&format!("python3 {PROBE} < /root/attempts"));
    let tried: Vec<Value> = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let one = |(attempt, tried): (&Value, &Value)| Attempt {
        what: attempt.to_string(),
        result: tried["result"].as_str().unwrap_or_default().to_owned(),
        seconds: tried["seconds"].as_f64().unwrap_or(f64::MAX),
    };
    attempts.as_array().into_iter().flatten().zip(&tried).map(one).collect()
}

/// Makes one attempt.
pub fn attempt(ws: &TestWorkspace<'_>, attempt: Value) -> Attempt {
    try_all(ws, json!([attempt])).remove(0)
}

/// Fetches a page over HTTP from the server with this name.
pub fn page(ws: &TestWorkspace<'_>, name: &str) -> Attempt {
    attempt(ws, json!(["http", name]))
}

pub fn policy(ws: &TestWorkspace<'_>, change: Value) -> Value {
    ws.tool("network_policy", change).json()["network_policy"].clone()
}

pub fn log(ws: &TestWorkspace<'_>) -> String {
    let logs = ws.tool("workspace_logs", json!({"log_type": "network", "max_lines": 1000})).json();
    logs["network"].as_str().unwrap_or_default().to_owned()
}

pub fn address(ws: &TestWorkspace<'_>) -> String {
    ws.created["ip"].as_str().unwrap_or_default().to_owned()
}

/// Starts a server in the guest that answers every connection with a greeting.
pub fn serve(ws: &TestWorkspace<'_>, port: u16, address: &str) {
    start_server(ws, port, address, "greeting");
}

/// Starts a server in the guest that sends data without end.
pub fn serve_endlessly(ws: &TestWorkspace<'_>, port: u16) {
    start_server(ws, port, "0.0.0.0", "endless");
}

/// Starts an echo server in the guest, over TCP and UDP.
pub fn echo(ws: &TestWorkspace<'_>, port: u16) {
    run_server(ws, "echo", include_str!("echo.py"), port, "");
}

fn start_server(ws: &TestWorkspace<'_>, port: u16, address: &str, what: &str) {
    run_server(ws, "serve", include_str!("serve.py"), port, &format!("{address} {what}"));
}

fn run_server(ws: &TestWorkspace<'_>, name: &str, text: &str, port: u16, arguments: &str) {
    ws.write(&format!("/root/{name}.py"), text);
    ws.sh(&format!("nohup python3 /root/{name}.py {port} {arguments} > /root/serving{port} 2>&1 &"));
    eventually("the server in the guest listens", LONG, || {
        ws.exec(&format!("grep -q listening /root/serving{port}")).exit_code == 0
    });
}

/// The hardware address of the gateway, as the guest has learned it.
pub fn router_mac(ws: &TestWorkspace<'_>) -> String {
    attempt(ws, json!(["ping", "10.42.0.1"]));
    let line = ws.sh("grep '^10.42.0.1 ' /proc/net/arp");
    line.split_whitespace().nth(3).unwrap_or_else(|| panic!("no hardware address in {line}")).to_owned()
}

/// Many connections at once; see `flows.py`.
pub fn flows<'a>(
    ws: &'a TestWorkspace<'a>,
    mode: &str,
    server: &str,
    port: u16,
    count: usize,
) -> Background<'a> {
    let arguments = [mode, server, &port.to_string(), &count.to_string()];
    Background::start(ws, "flows", include_str!("flows.py"), &arguments)
}

/// Frames without end; see `flood.py`.
pub fn flood<'a>(ws: &'a TestWorkspace<'a>, server: &str) -> Background<'a> {
    let arguments = [server, &router_mac(ws), &address(ws)];
    Background::start(ws, "flood", include_str!("flood.py"), &arguments)
}

/// A download that never ends by itself; see `download.py`. If the name is `-`, no HTTP request is sent.
pub fn download<'a>(ws: &'a TestWorkspace<'a>, server: &str, port: u16, name: &str) -> Background<'a> {
    let arguments = [server, &port.to_string(), name];
    Background::start(ws, "download", include_str!("download.py"), &arguments)
}

/// Requests that are never finished; see `loris.py`.
pub fn slow_requests<'a>(ws: &'a TestWorkspace<'a>, server: &str, port: u16) -> Background<'a> {
    Background::start(ws, "loris", include_str!("loris.py"), &[server, &port.to_string()])
}
