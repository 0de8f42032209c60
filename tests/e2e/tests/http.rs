//! MCP over HTTP: clients of `agentiso serve --http`, and programs inside workspaces.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;

use agentiso_e2e::internet::HOST;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Client, HostOptions, Process, TestHost, eventually, host_or_skip};
use rustix::process::Signal;
use serde_json::{Value, json};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

fn initialize() -> Value {
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// A raw HTTP response.
struct Answer(String);

impl Answer {
    fn status(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {:?}", self.0))
    }

    fn session(&self) -> &str {
        let found = self.0.lines().find_map(|line| line.strip_prefix("Mcp-Session-Id: "));
        found.unwrap_or_else(|| panic!("no session in {:?}", self.0)).trim()
    }

    fn structured(&self) -> Value {
        let body = self.0.split("\r\n\r\n").nth(1).unwrap_or_default();
        let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {:?}", self.0));
        body["result"]["structuredContent"].clone()
    }
}

/// `agentiso serve --http`, as a person would start it.
struct Server {
    child: Child,
    address: String,
    token: String,
}

impl Server {
    fn start(host: &TestHost) -> Self {
        Self::start_with(host, &["--http", "127.0.0.1:0"])
    }

    fn start_with(host: &TestHost, arguments: &[&str]) -> Self {
        let mut child = host.spawn(&[&["serve"], arguments].concat());
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut after = |words: &str| {
            let line = lines.next().expect("a line").expect("text");
            line.strip_prefix(words).unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let address = after("MCP at http://").trim_end_matches("/mcp").to_owned();
        let token = std::fs::read_to_string(after("token in ")).expect("a token").trim().to_owned();
        Self { child, address, token }
    }

    fn post(&self, token: &str, session: &str, message: &Value) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
        let body = message.to_string();
        let session =
            if session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {session}\r\n") };
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json\r\nAuthorization: Bearer {token}\r\n{session}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .expect("a listener");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        Answer(text)
    }
}

#[test]
fn http_client_creates_and_uses_workspaces() {
    let host = host_or_skip!();
    let mut server = Server::start(&host);
    assert_eq!(server.post("wrong", "", &initialize()).status(), "401");
    let opened = server.post(&server.token, "", &initialize());
    let session = opened.session();
    let made = server.post(&server.token, session, &call("workspace_create", json!({"name": "web"})));
    assert_eq!(made.structured()["state"], "running");
    let run = call("exec", json!({"workspace_id": "web", "command": "uname -s"}));
    assert_eq!(server.post(&server.token, session, &run).structured()["stdout"], "Linux\n");

    // It ends in order on SIGTERM, and its workspaces stay for others.
    let process = Process::open(server.child.id().cast_signed()).expect("it runs");
    process.signal(Signal::TERM);
    assert!(server.child.wait().expect("an end").success());
    let client = host.client();
    eventually("its session has ended", PATIENCE, || {
        !client.try_tool("workspace_adopt", json!({"workspace_id": "web"})).is_error
    });
    client.tool("workspace_destroy", json!({"workspace_id": "web"})).mentions(&["destroyed"]);
    host.assert_no_workspaces_left();
}

#[test]
fn remote_http_address_needs_explicit_flag() {
    let internet = internet_or_skip!();
    let host = host_or_skip!(internet.host_options(""));
    let there = format!("{HOST}:0");
    for address in [&there, "0.0.0.0:0", "[::]:0", "[::ffff:198.51.100.1]:0"] {
        let refused = host.cli(&["serve", "--http", address]);
        assert_eq!(refused.status.code(), Some(2), "{address}: {refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        for part in ["is reachable from other hosts", "not encrypted", "127.0.0.1", "--http-allow-remote"] {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
        assert_eq!(String::from_utf8_lossy(&refused.stdout), "", "{address}: nothing was opened");
    }
    assert!(host.daemon().is_none(), "nor was anything started for it");
    assert_eq!(host.cli(&["serve", "--http-allow-remote"]).status.code(), Some(2), "of what?");

    let mut server = Server::start_with(&host, &["--http", &there, "--http-allow-remote"]);
    let (address, port) = server.address.split_once(':').expect("an address and a port");
    let said =
        internet.request_from_outside(address, port.parse().expect("a port"), "GET /mcp HTTP/1.0\r\n\r\n");
    assert!(said.starts_with("HTTP/1."), "from outside there is an answer: {said:?}");
    Process::open(server.child.id().cast_signed()).expect("it runs").signal(Signal::TERM);
    assert!(server.child.wait().expect("an end").success());
}

/// The smallest image has no curl.
const POST: &str = r#"use Socket;
my ($token, $session, $body) = @ARGV;
socket(S, PF_INET, SOCK_STREAM, 6);
connect(S, sockaddr_in(3100, inet_aton("10.42.0.1"))) or die "not connected: $!\n";
select S; $| = 1; select STDOUT;
my $more = $session ? "Mcp-Session-Id: $session\r\n" : "";
print S "POST /mcp HTTP/1.1\r\nHost: 10.42.0.1:3100\r\nConnection: close\r\nContent-Type: application/json\r\n",
    "Accept: application/json\r\nAuthorization: Bearer $token\r\n${more}Content-Length: ", length($body), "\r\n\r\n$body";
print while <S>;
"#;

/// One request from inside a workspace.
fn from_inside(client: &Client, workspace: &str, token: &str, session: &str, message: &Value) -> Answer {
    let command = format!("perl /root/post.pl '{token}' '{session}' '{message}'");
    let answer = client.tool("exec", json!({"workspace_id": workspace, "command": command})).json();
    assert_eq!(answer["exit_code"], 0, "{answer}");
    Answer(answer["stdout"].as_str().expect("text").to_owned())
}

#[test]
fn guest_mcp_token_controls_only_its_workspace() {
    let config = "[mcp_bridge]\nenabled = true\n".to_owned();
    let host = host_or_skip!(HostOptions { config, max_workspaces: 4, ..HostOptions::default() });
    let client = host.client();
    let gold = client.workspace_with(json!({"name": "gold"}));
    gold.write("/root/post.pl", POST);
    gold.tool("snapshot", json!({"action": "create", "name": "golden"}));
    let command = format!("perl /root/post.pl $AGENTISO_MCP_TOKEN '' '{}'", initialize());
    let tasks = json!([{"name": "a", "command": command}, {"name": "b", "command": command}]);
    let arguments = json!({"golden_workspace": "gold", "snapshot_name": "golden", "tasks": tasks, "mcp_bridge": true,
        "cleanup": false});
    let done = client.tool("swarm_run", arguments).json();
    assert_eq!(
        (&done["summary"]["succeeded"], &done["summary"]["mcp_bridge"]),
        (&json!(2), &json!(true)),
        "{done}"
    );
    let [a, b] = [0, 1].map(|n| done["tasks"][n]["workspace_id"].as_str().expect("an id").to_owned());
    let opened = Answer(done["tasks"][0]["stdout"].as_str().expect("text").to_owned());
    assert_eq!(opened.status(), "200", "{}", opened.0);

    let token = |workspace: &str| {
        let read = json!({"workspace_id": workspace, "path": "/root/.config/opencode/config.jsonc"});
        let config: Value = serde_json::from_str(&client.tool("file_read", read).text).expect("JSON");
        let header = config["mcpServers"]["agentiso"]["headers"]["Authorization"].as_str().expect("a header");
        header.strip_prefix("Bearer ").expect("a token").to_owned()
    };
    let (token_a, token_b) = (token(&a), token(&b));
    let hostname = call("exec", json!({"command": "hostname; echo from inside > /root/proof"}));
    let ran = from_inside(&client, &a, &token_a, opened.session(), &hostname).structured();
    assert!(ran["stdout"].as_str().expect("text").ends_with("-a\n"), "{ran}");
    let proof = json!({"workspace_id": a, "path": "/root/proof"});
    assert_eq!(client.tool("file_read", proof).text, "from inside\n");
    let elsewhere = call("exec", json!({"workspace_id": "gold", "command": "true"}));
    let refused = from_inside(&client, &a, &token_a, opened.session(), &elsewhere).structured();
    assert_eq!(refused["code"], "workspace_not_found", "{refused}");

    // Neither a token nor a session works in another workspace.
    assert_eq!(from_inside(&client, &b, &token_a, "", &initialize()).status(), "401");
    assert_eq!(from_inside(&client, "gold", &token_a, "", &initialize()).status(), "401");
    assert_eq!(from_inside(&client, &b, "", "", &initialize()).status(), "401");
    assert_eq!(from_inside(&client, &b, &token_b, opened.session(), &hostname).status(), "404");

    // The CLI grants a token to any workspace, and revokes it.
    let granted: Value = serde_json::from_str(&host.cli_ok(&["mcp-token", "gold", "--json"])).expect("JSON");
    let by_hand = granted["token"].as_str().expect("a token");
    assert_eq!(from_inside(&client, "gold", by_hand, "", &initialize()).status(), "200");
    host.cli_ok(&["mcp-token", "gold", "--revoke"]);
    assert_eq!(from_inside(&client, "gold", by_hand, "", &initialize()).status(), "401");

    // After a crash the daemon still knows the token, by its hash.
    assert!(!std::fs::read_to_string(host.state_file()).expect("a ledger").contains(&token_a[4..]));
    host.kill_daemon();
    let client = host.client();
    client.tool("workspace_adopt", json!({"force": true}));
    assert_eq!(from_inside(&client, &a, &token_a, "", &initialize()).status(), "200");
    for workspace in [a.as_str(), b.as_str(), "gold"] {
        client.tool("workspace_destroy", json!({"workspace_id": workspace}));
    }
    host.assert_no_workspaces_left();
}

/// The data that a guest receives from a port of the gateway.
fn read_port(client: &Client, workspace: &str, port: u16) -> String {
    let call = format!(
        "use Socket; socket(S, PF_INET, SOCK_STREAM, 6); alarm 20; \
         connect(S, sockaddr_in({port}, inet_aton(\"10.42.0.1\"))) or do {{ print \"$!\"; exit }}; print <S>"
    );
    let ran = client.tool("exec", json!({"workspace_id": workspace, "command": format!("perl -e '{call}'")}));
    ran.json()["stdout"].as_str().expect("text").to_owned()
}

#[test]
fn model_server_is_reachable_only_with_token() {
    let models = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = models.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for connection in models.incoming() {
            let _ = connection.and_then(|mut connection| connection.write_all(b"a model"));
        }
    });
    let config = format!("[mcp_bridge]\nenabled = true\nollama_port = {port}\nmodel = \"small\"\n");
    let host = host_or_skip!(HostOptions { config, max_workspaces: 4, ..HostOptions::default() });
    let client = host.client();
    let gold = client.workspace_with(json!({"name": "gold"}));
    gold.snapshot("golden");
    assert_eq!(read_port(&client, "gold", port), "Connection refused");
    let log = host.cli_ok(&["net", "log", "gold"]);
    assert!(log.contains("refused") && log.contains(&format!("10.42.0.1:{port}")), "{log}");
    let tasks = json!([{"name": "a", "command": "cat /root/.config/opencode/config.jsonc"}]);
    let arguments = json!({"golden_workspace": "gold", "snapshot_name": "golden", "tasks": tasks, "mcp_bridge": true,
        "cleanup": false});
    let done = client.tool("swarm_run", arguments).json();
    let worker = done["tasks"][0]["workspace_id"].as_str().expect("an id");
    let config = done["tasks"][0]["stdout"].as_str().expect("text");
    let config: Value = serde_json::from_str(config).expect("JSON");
    assert_eq!(
        (&config["provider"], &config["model"], &config["baseURL"]),
        (&json!("ollama"), &json!("small"), &json!(format!("http://10.42.0.1:{port}/v1"))),
        "{config}"
    );
    assert_eq!(read_port(&client, worker, port), "a model");
    host.cli_ok(&["mcp-token", "gold"]);
    assert_eq!(read_port(&client, "gold", port), "a model");
    host.cli_ok(&["mcp-token", "gold", "--revoke"]);
    assert_eq!(read_port(&client, "gold", port), "Connection refused");
    for workspace in [worker, "gold"] {
        client.tool("workspace_destroy", json!({"workspace_id": workspace}));
    }
    host.assert_no_workspaces_left();
}
