//! Commands in a guest: output, limits, timeouts, cancellation.

use std::time::{Duration, Instant};

use agentiso_testkit::{eventually, host_or_skip};
use serde_json::json;

#[test]
fn exec_applies_arguments_and_returns_output() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let out = ws.exec("echo out; echo err >&2; exit 3");
    assert_eq!((out.exit_code, out.stdout.as_str(), out.stderr.as_str()), (3, "out\n", "err\n"));
    let out = ws.exec_with(json!({
        "command": "echo \"$GREETING\"; pwd; cat", "env": {"GREETING": "hällo\nthere"}, "workdir": "/workspace",
    }));
    assert_eq!(out.stdout, "hällo\nthere\n/workspace\n", "and stdin is empty");
    assert_eq!(ws.exec("no-such-program").exit_code, 127);
    assert_eq!(ws.sh("printf 'a\\377b'"), "a\u{fffd}b", "what is not UTF-8 is shown as far as it goes");
    let out = ws.tool("exec", json!({"command": "kill -TERM $$"})).json();
    assert_eq!((out["exit_code"].as_i64(), out["signal"].as_i64()), (Some(143), Some(15)));
}

#[test]
fn bad_arguments_are_refused_before_anything_runs() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let refused = |arguments, parts: &[&str]| {
        ws.tool_error("exec", arguments).mentions(parts);
    };
    refused(json!({}), &["command"]);
    refused(
        json!({"command": 5, "timeout_secs": 0, "max_output_bytes": -1}),
        &["command", "timeout_secs", "max_output_bytes"],
    );
    refused(json!({"command": "touch /ran", "timeout_sec": 5}), &["timeout_secs"]);
    refused(json!({"command": "touch /ran", "env": {"PATH": "/x"}}), &["PATH"]);
    refused(json!({"command": "touch /ran", "env": {"LD_PRELOAD": "/x"}}), &["LD_PRELOAD"]);
    refused(json!({"command": "touch /ran", "env": {"A=B": "x"}}), &["A=B"]);
    refused(json!({"command": "touch /ran", "env": {"A": 1}}), &["env"]);
    refused(json!({"command": "touch /ran\u{0}"}), &["command"]);
    refused(json!({"command": "touch /ran", "workdir": "relative"}), &["workdir"]);
    refused(json!({"command": "touch /ran", "workdir": "/no/such/dir"}), &["/no/such/dir"]);
    assert_eq!(ws.exec("test -e /ran").exit_code, 1);
}

#[test]
fn gigabyte_of_output_is_truncated_with_counts() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let command = "echo begin; head -c 1073741818 /dev/zero";
    let out = ws.exec_with(json!({"command": command, "timeout_secs": 600}));
    assert_eq!(out.exit_code, 0);
    assert!(out.stdout.starts_with("begin\n\0\0"));
    let marker =
        out.stdout.lines().find(|l| l.starts_with("[TRUNCATED")).expect("a line that says what was cut");
    assert!(marker.contains("1073741824"), "{marker}");
    assert!(out.stdout.len() < 12_000, "{} bytes came back unasked", out.stdout.len());

    // The agent keeps 2 MiB of each stream.
    let most = 2 << 20;
    let both = "seq 400000; seq 400000 >&2";
    let out = ws.exec_with(json!({"command": both, "max_output_bytes": most}));
    let numbers: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    for stream in [&out.stdout, &out.stderr] {
        let shown = stream.split_once("[TRUNCATED").expect("a line that says what was cut").0;
        assert!(numbers.starts_with(shown.trim_end()) && shown.len() >= most, "{} bytes", shown.len());
    }
    ws.tool_error("exec", json!({"command": both, "max_output_bytes": most + 1})).mentions(&["2097152"]);

    let out = ws.exec_with(json!({"command": "printf 'ää%.0s' $(seq 100)", "max_output_bytes": 11}));
    assert!(out.stdout.starts_with("äääää\n[TRUNCATED"), "{:?}", out.stdout);
    let free: u64 = ws.sh("awk '/MemAvailable/ {print int($2/1024)}' /proc/meminfo").parse().unwrap();
    assert!(free > 100, "the agent keeps too much: {free} MB left");
}

#[test]
fn timeout_kills_process_group_and_keeps_output() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let error = ws.tool_error(
        "exec",
        json!({"command": "echo $$ > /pid; echo begun; (while :; do sleep 0.1; echo x >> /ticks; done) & sleep 1000", "timeout_secs": 2}),
    );
    error.mentions(&["timed out", "2", "begun"]);
    assert_ne!(ws.exec("kill -0 -$(cat /pid)").exit_code, 0, "the group lives on");
    let before = ws.sh("wc -l < /ticks");
    assert_eq!(ws.sh("sleep 0.5; wc -l < /ticks"), before, "the grandchild lives on");
}

#[test]
fn cancelling_a_call_kills_its_process_group() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let running =
        client.start_tool("exec", ws.with_id(json!({"command": "echo $$ > /pid; sleep 1000 & sleep 1000"})));
    eventually("the command runs", Duration::from_secs(60), || ws.exec("test -s /pid").exit_code == 0);
    client.cancel(&running);
    eventually("the group is gone", Duration::from_secs(30), || {
        ws.exec("kill -0 -$(cat /pid) 2>/dev/null").exit_code != 0
    });
}

#[test]
fn disconnected_client_leaves_no_guest_process() {
    let host = host_or_skip!();
    let owner = host.client();
    let ws = owner.workspace();
    let pending = owner.start_tool("exec", ws.with_id(json!({"command": "echo $$ > /pid; exec sleep 1000"})));
    eventually("the command runs", Duration::from_secs(60), || ws.exec("test -s /pid").exit_code == 0);
    let id = ws.id.clone();
    owner.kill();
    drop(pending);

    let other = host.client();
    eventually("the workspace can be taken over", Duration::from_secs(30), || {
        !other.try_tool("workspace_adopt", json!({"workspace_id": id})).is_error
    });
    eventually("the command is gone", Duration::from_secs(30), || {
        let gone = other
            .tool("exec", json!({"workspace_id": id, "command": "kill -0 $(cat /pid) 2>/dev/null; echo $?"}));
        gone.json()["stdout"] == "1\n"
    });
}

#[test]
fn background_grandchild_does_not_delay_the_call() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let begun = Instant::now();
    assert_eq!(ws.exec("sleep 300 & echo done").stdout, "done\n");
    assert!(begun.elapsed() < Duration::from_secs(60), "the call waited for the background process");
}

#[test]
fn long_command_delays_no_other_call() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.write("/workspace/f", "quick");
    let long = client.start_tool("exec", ws.with_id(json!({"command": "sleep 1000", "timeout_secs": 900})));
    let many: Vec<_> = (0..16)
        .map(|i| client.start_tool("exec", ws.with_id(json!({"command": format!("echo {i}")}))))
        .collect();
    assert_eq!(ws.read("/workspace/f"), "quick");
    for (i, pending) in many.into_iter().enumerate() {
        assert_eq!(pending.tool().json()["stdout"], format!("{i}\n"));
    }
    assert!(long.wait_for(Duration::ZERO).is_none(), "the long command is still running");
    client.cancel(&long);
}

#[test]
fn progress_is_reported_only_when_requested() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.exec("sleep 3");
    assert_eq!(client.unsolicited(), Vec::<serde_json::Value>::new());
    let call = client.request(
        "tools/call",
        json!({"name": "exec", "arguments": ws.with_id(json!({"command": "sleep 4"})), "_meta": {"progressToken": "p1"}}),
    );
    call.result();
    let seen = client.unsolicited();
    assert!(!seen.is_empty(), "no progress came");
    assert!(
        seen.iter().all(|n| n["method"] == "notifications/progress" && n["params"]["progressToken"] == "p1"),
        "{seen:?}"
    );
}

#[test]
fn agent_survives_guest_out_of_memory() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    // File systems in memory are bounded: a program that fills them gets an error, and no process is killed.
    for path in ["/dev/shm/x", "/run/x"] {
        let full = ws.exec(&format!("dd if=/dev/zero of={path} bs=1M count=400; rm {path}"));
        assert!(full.stderr.contains("No space left on device"), "{path}: {full:?}");
    }
    assert_eq!(ws.sh("stat -f -c %T /tmp"), "ext2/ext3", "on the disk");
    assert_eq!(ws.sh("cat /proc/self/oom_score_adj"), "0", "a command is spared no more than any other");
    let hog = "python3 -c \"x=bytearray(10); \nwhile True: x += b'y' * (16 << 20)\"";
    let out = ws.exec_with(json!({"command": hog, "timeout_secs": 300}));
    assert_eq!(out.exit_code, 137, "what took the memory is what goes: {out:?}");
    assert_eq!(ws.sh("echo alive"), "alive");
}
