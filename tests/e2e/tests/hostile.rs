//! Large amounts of bad input against the real `serve`: nothing hangs, crashes or leaks.

use std::time::Duration;

use agentiso_testkit::{Client, RpcReply, host_or_skip};
use serde_json::{Value, json};

/// The number of random argument sets for each tool.
const SETS_PER_TOOL: usize = 10_000;

/// Calls in flight at once: more would only queue in the pipe.
const IN_FLIGHT: usize = 64;

fn is_alive(client: &Client) {
    assert!(
        client.request("ping", json!({})).wait_for(Duration::from_secs(60)).is_some(),
        "the server hangs"
    );
}

#[test]
fn session_survives_malformed_messages() {
    let host = host_or_skip!();
    let client = host.client();
    let lines: [&[u8]; 14] = [
        b"\n",
        b"{\n",
        b"not json at all\n",
        b"\x00\x01\x02\xff\xfe\n",
        b"[]\n",
        b"[1,2,3]\n",
        b"null\n",
        b"42\n",
        b"\"text\"\n",
        b"{}\n",
        b"{\"jsonrpc\":\"1.0\",\"id\":9001,\"method\":\"ping\"}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":{\"a\":1},\"method\":\"ping\"}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":9002,\"method\":\"tools/call\",\"params\":7}\n",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/none\",\"params\":[]}\r\n",
    ];
    for line in lines {
        client.send_raw(line);
        is_alive(&client);
    }
    let deep = format!("{}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    client.send_raw(deep.as_bytes());
    is_alive(&client);
}

#[test]
fn invalid_requests_get_json_rpc_errors() {
    let host = host_or_skip!();
    let client = host.client();
    let error = |method: &str, params: Value| match client.request(method, params).wait() {
        RpcReply::Error { code, message } => (code, message),
        RpcReply::Result(value) => panic!("{method} succeeded: {value}"),
    };
    assert_eq!(error("no/such/method", json!({})).0, -32601);
    let (code, message) = error("tools/call", json!({"name": "workspace_craete", "arguments": {}}));
    assert_eq!(code, -32602);
    assert!(message.contains("workspace_create"), "{message}");
    assert_eq!(error("tools/call", json!({"arguments": {}})).0, -32602);
}

#[test]
fn oversized_lines_neither_hang_nor_kill_serve() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    // More than one mebibyte must work: clients send contexts of that size.
    ws.write("/workspace/two", &"x".repeat(2 << 20));
    assert_eq!(ws.sh("stat -c %s /workspace/two"), (2 << 20).to_string());
    for mebibytes in [17, 80, 300] {
        client.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":7777,\"method\":\"tools/call\",\"params\":{\"name\":\"exec\",\"arguments\":{\"command\":\"");
        let chunk = vec![b'a'; 1 << 20];
        for _ in 0..mebibytes {
            client.send_raw(&chunk);
        }
        client.send_raw(b"\"}}}\n");
        is_alive(&client);
    }
    assert_eq!(ws.sh("echo alive"), "alive");
}

#[test]
fn partial_line_does_not_block_disconnect() {
    let host = host_or_skip!();
    let client = host.client();
    client.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"meth");
    assert!(client.hang_up().success());
    is_alive(&host.client());
}

/// A small random number generator that gives the same arguments in every run, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn text(&mut self) -> String {
        const ODD: [&str; 16] = [
            "",
            "..",
            "/",
            "../../etc/passwd",
            "a\0b",
            "a\nb",
            "\"'`$(id)",
            "-rf",
            "ä\u{202e}",
            "\u{ffff}",
            "true",
            "/workspace/x",
            "0644",
            "running",
            "00000000-0000-4000-8000-000000000000",
            "exit 0",
        ];
        match self.below(12) {
            0 => "x".repeat(self.below(5000) as usize),
            _ => ODD[self.below(ODD.len() as u64) as usize].to_owned(),
        }
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 8 } else { 10 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(5000)),
            3 => json!(u64::MAX),
            4 => json!(-(self.below(1 << 40) as i64)),
            5 => json!(1.5e300),
            6 | 7 => json!(self.text()),
            8 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => (0..self.below(4))
                .map(|_| (self.text(), self.value(depth - 1)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    fn arguments(&mut self, schema: &Value, workspace: &str) -> Value {
        let mut arguments = serde_json::Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let value = match (property["type"].as_str(), self.below(10)) {
                (_, 0 | 1) => continue,
                (_, 2 | 3) => self.value(2),
                (Some("string"), _) if name == "workspace_id" && self.below(40) == 0 => json!(workspace),
                (Some("string"), _) => json!(self.text()),
                (Some("integer"), _) => json!(self.below(3000)),
                (Some("boolean"), _) => json!(self.below(2) == 0),
                (_, _) => self.value(2),
            };
            arguments.insert(name.clone(), value);
        }
        if self.below(8) == 0 {
            arguments.insert(self.text(), self.value(2));
        }
        arguments.into()
    }
}

#[test]
fn every_tool_answers_random_arguments() {
    let host = host_or_skip!();
    let client = host.client();
    let target = client.workspace();
    let tools = client.request("tools/list", json!({})).result();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for tool in tools["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        // A create takes a second, so its arguments are made invalid; valid ones are tested elsewhere.
        let make = |random: &mut Random| {
            let mut arguments = random.arguments(&tool["inputSchema"], &target.id);
            match name {
                "workspace_create" => arguments["vcpus"] = random.value(1),
                // It would create a workspace for every valid name.
                "workspace_prepare" => arguments["name"] = json!("no name"),
                "exec" if arguments["timeout_secs"].as_u64().is_some_and(|t| t > 1) => {
                    arguments["timeout_secs"] = json!(1)
                }
                "workspace_destroy" | "workspace_stop" if arguments["workspace_id"] == target.id.as_str() => {
                    arguments["workspace_id"] = json!("another");
                }
                _ => {}
            }
            if name == "workspace_create" && arguments["vcpus"].as_u64().is_some_and(|v| v > 0) {
                arguments["vcpus"] = json!("none");
            }
            if name == "workspace_create" && arguments["vcpus"].is_null() {
                arguments["vcpus"] = json!(0);
            }
            arguments
        };
        let mut sent = 0;
        let mut waiting = std::collections::VecDeque::new();
        while sent < SETS_PER_TOOL || !waiting.is_empty() {
            if sent < SETS_PER_TOOL && waiting.len() < IN_FLIGHT {
                waiting.push_back(client.start_tool(name, make(&mut random)));
                sent += 1;
                continue;
            }
            if let Some(pending) = waiting.pop_front() {
                pending.wait();
            }
        }
        is_alive(&client);
    }
    assert_eq!(target.sh("echo alive"), "alive");
    assert_eq!(host.vms().len(), 1, "a random create made a VM");
    assert!(client.stderr().len() < 64 << 10, "stderr would fill a pipe: {} bytes", client.stderr().len());
}
