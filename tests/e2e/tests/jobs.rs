//! Background jobs, commands in several workspaces at once, and the environment of commands.

use std::time::{Duration, Instant};

use agentiso_testkit::{HostOptions, TestHost, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

fn start(ws: &TestWorkspace<'_>, command: &str) -> u64 {
    let started = ws.tool("exec_background", json!({"action": "start", "command": command})).json();
    assert_eq!(started["status"], "started", "{started}");
    started["job_id"].as_u64().unwrap_or_else(|| panic!("no job_id in {started}"))
}

fn poll(ws: &TestWorkspace<'_>, job: u64) -> Value {
    ws.tool("exec_background", json!({"action": "poll", "job_id": job})).json()
}

fn wait(ws: &TestWorkspace<'_>, job: u64) -> Value {
    let ended = ws.tool("exec_background", json!({"action": "poll", "job_id": job, "wait_secs": 60})).json();
    assert_eq!(ended["running"], false, "{ended}");
    ended
}

#[test]
fn job_can_be_polled_while_running_and_afterwards() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let job =
        start(&ws, "echo before; echo oops >&2; while [ ! -e /go ]; do sleep 0.1; done; echo after; exit 3");
    assert_eq!(job, 1, "ids are counted from 1");
    eventually("output comes while it runs", Duration::from_secs(30), || {
        poll(&ws, job)["stdout"] == "before\n"
    });
    let running = poll(&ws, job);
    assert_eq!((&running["running"], &running["exit_code"]), (&json!(true), &Value::Null), "{running}");
    let offset = running["stdout_bytes"].as_u64().unwrap();
    ws.sh("touch /go");
    for _ in 0..2 {
        let ended = wait(&ws, job);
        assert_eq!(
            (&ended["exit_code"], &ended["stdout"]),
            (&json!(3), &json!("before\nafter\n")),
            "{ended}"
        );
        assert_eq!(ended["stderr"], "oops\n");
    }
    let more = json!({"action": "poll", "job_id": job, "stdout_offset": offset, "stderr_offset": 5});
    let rest = ws.tool("exec_background", more).json();
    assert_eq!((&rest["stdout"], &rest["stderr"]), (&json!("after\n"), &json!("")));
    let listed = ws.tool("exec_background", json!({"action": "list"})).json();
    assert_eq!((&listed[0]["job_id"], &listed[0]["exit_code"]), (&json!(1), &json!(3)), "{listed}");
    let late = start(&ws, "sleep 3 && echo x");
    eventually("it ends by itself", Duration::from_secs(30), || poll(&ws, late)["running"] == false);
    let ended = poll(&ws, late);
    assert_eq!((&ended["exit_code"], &ended["stdout"]), (&json!(0), &json!("x\n")), "{ended}");
}

#[test]
fn killed_job_dies_with_all_its_processes() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let job = start(&ws, "sleep 1000 & echo $! > /child; echo $$ > /leader; wait");
    eventually("it runs", Duration::from_secs(30), || ws.exec("test -s /leader").exit_code == 0);
    let killed = ws.tool("exec_background", json!({"action": "kill", "job_id": job})).json();
    assert_eq!(killed, json!({"job_id": job, "signal": 9, "status": "killed"}));
    let state = poll(&ws, job);
    assert_eq!(
        (&state["running"], &state["exit_code"], &state["signal"]),
        (&json!(false), &json!(137), &json!(9))
    );
    assert_ne!(ws.exec("kill -0 $(cat /child) || kill -0 $(cat /leader)").exit_code, 0, "something lives on");
    ws.tool("exec_background", json!({"action": "kill", "job_id": job, "signal": 15}));
    let deaf = start(&ws, "trap '' TERM; echo ready; while :; do sleep 0.1; done");
    eventually("it is deaf", Duration::from_secs(30), || poll(&ws, deaf)["stdout"] == "ready\n");
    let signalled =
        ws.tool("exec_background", json!({"action": "kill", "job_id": deaf, "signal": 15})).json();
    assert_eq!(signalled["status"], "running", "a job that goes on is not called killed");
    ws.tool("exec_background", json!({"action": "kill", "job_id": deaf}));
    assert_eq!(poll(&ws, deaf)["running"], false);
}

#[test]
fn bad_job_requests_name_the_reason() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let refused = |arguments: Value| ws.tool_error("exec_background", arguments);
    refused(json!({"action": "poll", "job_id": 7})).mentions(&["job 7", "no job was started"]);
    assert_eq!(refused(json!({"action": "kill", "job_id": 7})).code(), "no_job");
    refused(json!({"action": "poll"})).mentions(&["job_id"]);
    refused(json!({"action": "start"})).mentions(&["command"]);
    refused(json!({"action": "statr", "command": "true"})).mentions(&["start, poll, kill", "did you mean"]);
    refused(json!({"action": "kill", "job_id": 1, "signal": 64})).mentions(&["between 1 and 31"]);
    refused(json!({"command": "true", "env": {"LD_PRELOAD": "x"}})).mentions(&["LD_PRELOAD"]);
    assert_eq!(refused(json!({"command": "true", "workdir": "/none"})).code(), "bad_workdir");
    assert_eq!(ws.tool("exec_background", json!({"action": "list"})).text, "[]", "nothing was started");
    ws.stop();
    refused(json!({"command": "true"})).mentions(&["workspace_start"]);
    ws.start();
    assert_eq!(start(&ws, "true"), 1, "a VM that was started anew counts anew");
}

#[test]
fn large_job_output_is_truncated_with_counts() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let job = start(&ws, "yes 0123456789abcde | head -c 8000000; echo done >&2");
    let ended = wait(&ws, job);
    assert_eq!((&ended["stderr"], &ended["stdout_bytes"]), (&json!("done\n"), &json!(8_000_000)), "{ended}");
    let stdout = ended["stdout"].as_str().unwrap();
    assert!(stdout.contains("[TRUNCATED 8000000 bytes in all"), "no word about what is missing");
    assert!(stdout.len() < 12_000 && stdout.starts_with("0123456789abcde\n") && stdout.ends_with("abcde\n"));
    assert!(stdout.contains("stdout_offset"), "no word about how to get it");
}

#[test]
fn jobs_survive_a_killed_daemon() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "survivor"}));
    let job = start(&ws, "echo early; while [ ! -e /go ]; do sleep 0.1; done; echo late");
    ws.tool("set_env", json!({"vars": {"KEPT": "yes"}}));
    host.kill_daemon();

    let next = host.client();
    next.tool("workspace_adopt", json!({}));
    let ask = |tool: &str, mut arguments: Value| {
        arguments["workspace_id"] = json!("survivor");
        next.tool(tool, arguments).json()
    };
    eventually("it has said something", Duration::from_secs(30), || {
        let running = ask("exec_poll", json!({"job_id": job}));
        assert_eq!(running["running"], true, "{running}");
        running["stdout"] == "early\n"
    });
    assert_eq!(ask("exec", json!({"command": "touch /go; echo $KEPT"}))["stdout"], "yes\n");
    let ended = ask("exec_background", json!({"action": "poll", "job_id": job, "wait_secs": 60}));
    assert_eq!((&ended["exit_code"], &ended["stdout"]), (&json!(0), &json!("early\nlate\n")), "{ended}");
    next.tool("workspace_destroy", json!({"workspace_id": "survivor"}));
}

#[test]
fn jobs_and_variables_need_a_memory_snapshot() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.tool("set_env", json!({"vars": {"KEY": "value"}}));
    let job = start(&ws, "n=0; while :; do n=$((n+1)); echo $n; sleep 0.2; done");
    eventually("it counts", Duration::from_secs(30), || poll(&ws, job)["stdout_bytes"].as_u64() > Some(6));
    ws.snapshot_with_memory("m");
    ws.snapshot("disk");
    let fork = ws.fork("m");
    for vm in [&ws, &fork] {
        let before = poll(vm, job)["stdout_bytes"].as_u64();
        eventually("it goes on", Duration::from_secs(30), || poll(vm, job)["stdout_bytes"].as_u64() > before);
        assert_eq!(vm.sh("echo $KEY"), "value");
    }
    fork.tool("exec_background", json!({"action": "kill", "job_id": job}));
    assert_eq!(poll(&ws, job)["running"], true, "the job of the source is another");
    ws.restore("m");
    assert_eq!((&poll(&ws, job)["running"], ws.sh("echo $KEY").as_str()), (&json!(true), "value"));
    ws.restore("disk");
    assert_eq!(ws.sh("echo \"[$KEY]\""), "[]", "a VM without its memory has no variables");
    ws.tool_error("exec_background", json!({"action": "poll", "job_id": job}))
        .mentions(&["no job was started"]);
}

#[test]
fn command_beyond_background_after_becomes_a_job() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let quick = ws.tool("exec", json!({"command": "echo hi; exit 4", "background_after_secs": 60})).json();
    assert_eq!(quick, json!({"exit_code": 4, "stdout": "hi\n", "stderr": ""}));
    let begun = Instant::now();
    let command = "echo begun; while [ ! -e /go ]; do sleep 0.1; done; echo done";
    let kept = ws.tool("exec", json!({"command": command, "background_after_secs": 2})).json();
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(
        (&kept["running"], &kept["stdout"], &kept["exit_code"]),
        (&json!(true), &json!("begun\n"), &Value::Null)
    );
    let job = kept["job_id"].as_u64().unwrap_or_else(|| panic!("no job_id in {kept}"));
    ws.sh("touch /go");
    let ended = wait(&ws, job);
    assert_eq!((&ended["exit_code"], &ended["stdout"]), (&json!(0), &json!("begun\ndone\n")), "{ended}");
    let wrong = json!({"command": "true", "timeout_secs": 5, "background_after_secs": 5});
    ws.tool_error("exec", wrong).mentions(&["background_after_secs", "less than timeout_secs"]);

    let waiting = client.start_tool(
        "exec",
        ws.with_id(json!({"command": "echo $$ > /pid; sleep 1000", "background_after_secs": 600})),
    );
    eventually("it runs", Duration::from_secs(30), || ws.exec("test -s /pid").exit_code == 0);
    client.cancel(&waiting);
    eventually("cancelling it before it is a job kills it", Duration::from_secs(30), || {
        ws.exec("kill -0 $(cat /pid)").exit_code != 0
    });
}

#[test]
fn long_command_reports_progress_throughout() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let arguments = ws.with_id(json!({"command": "sleep 12", "background_after_secs": 60}));
    let params = json!({"name": "exec", "arguments": arguments, "_meta": {"progressToken": "p"}});
    client.request("tools/call", params).result();
    let reports = client.unsolicited().iter().filter(|n| n["method"] == "notifications/progress").count();
    assert!(reports >= 3, "{reports} reports in 12 s");
}

#[test]
fn set_env_reaches_commands_and_refuses_reserved_names() {
    // Values of variables are not logged, even at the level `trace`.
    let environment = vec![("RUST_LOG".to_owned(), "trace".to_owned())];
    let host = host_or_skip!(HostOptions { environment, ..HostOptions::default() });
    let client = host.client();
    let ws = client.workspace();
    let set = ws.tool("set_env", json!({"vars": {"TOKEN": "s3cr3t-value", "B": "two words"}})).json();
    assert_eq!(set, json!({"count": 2, "status": "set"}));
    assert_eq!(ws.sh("echo $TOKEN/$B"), "s3cr3t-value/two words");
    let out = ws.exec_with(json!({"command": "echo $TOKEN/$B", "env": {"B": "call"}}));
    assert_eq!(out.stdout, "s3cr3t-value/call\n", "what a call gives wins");
    let job = start(&ws, "echo $B");
    assert_eq!(wait(&ws, job)["stdout"], "two words\n");
    let all = json!({"workspace_ids": [ws.id], "commands": "echo $B"});
    assert_eq!(client.tool("exec_parallel", all).json()["results"][0]["stdout"], "two words\n");
    for name in ["PATH", "IFS", "ENV", "BASH_ENV", "LD_PRELOAD", "1A", "A-B", ""] {
        let mut vars = json!({"B": "changed"});
        vars[name] = json!("x");
        let refused = ws.tool_error("set_env", json!({"vars": vars}));
        refused.mentions(&[name]);
        assert!(!refused.text.contains("changed"), "values are not repeated");
    }
    assert_eq!(ws.sh("echo $B"), "two words", "none of it was set");
    client.tool_error("set_env", json!({"workspace_id": "nobody", "vars": {"A": "1"}})).mentions(&["nobody"]);
    ws.tool_error("set_env", json!({"vars": {"BIG": "x".repeat(300_000)}})).mentions(&["BIG"]);
    assert_no_trace(&host, "s3cr3t-value");
    ws.stop();
    ws.start();
    assert_eq!(ws.sh("echo \"[$TOKEN]\""), "[]", "a stop forgets them");
    assert_no_trace(&host, "s3cr3t-value");
}

/// Asserts that no file of the daemon contains the secret, neither the ledger nor a log. Disks of VMs are not searched.
fn assert_no_trace(host: &TestHost, secret: &str) {
    let mut waiting = vec![host.dir().to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a file has a type");
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() && !name.ends_with(".qcow2") {
                let content = std::fs::read(entry.path()).unwrap_or_default();
                let found = content.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!found, "{} has the secret", entry.path().display());
            }
        }
    }
}

#[test]
fn commands_run_in_several_workspaces_at_once() {
    let host = host_or_skip!();
    let client = host.client();
    let a = client.workspace_with(json!({"name": "a"}));
    let b = client.workspace_with(json!({"name": "b"}));
    let run = |arguments: Value| client.tool("exec_parallel", arguments).json();
    let same = run(json!({"workspace_ids": ["b", a.id], "commands": "hostname", "timeout_secs": 60}));
    let results = same["results"].as_array().unwrap();
    let expected = |ws: &TestWorkspace<'_>| {
        json!({"workspace_id": ws.id, "workspace_name": ws.name, "exit_code": 0, "stdout": format!("{}\n", ws.name),
            "stderr": "", "timed_out": false})
    };
    assert_eq!(results, &[expected(&b), expected(&a)], "in the order of the request");
    assert_eq!((&same["summary"]["total"], &same["summary"]["succeeded"]), (&json!(2), &json!(2)));

    let begun = Instant::now();
    let mixed = run(json!({"workspace_ids": ["a", "b", "a"], "timeout_secs": 3,
        "commands": ["echo so far; sleep 1000", "exit 7", "echo $X; pwd"], "env": {"X": "1"}, "workdir": "/tmp"}));
    assert!(begun.elapsed() < Duration::from_secs(30));
    let summary = &mixed["summary"];
    assert_eq!(
        (&summary["succeeded"], &summary["failed"], &summary["timed_out"]),
        (&json!(1), &json!(1), &json!(1)),
        "{mixed}"
    );
    let late = &mixed["results"][0];
    assert_eq!(
        (&late["exit_code"], &late["timed_out"], &late["stdout"]),
        (&json!(-1), &json!(true), &json!("so far\n"))
    );
    assert!(late["stderr"].as_str().unwrap().contains("timed out after 3 s"), "{late}");
    assert_eq!(mixed["results"][1]["exit_code"], 7);
    assert_eq!(mixed["results"][2]["stdout"], "1\n/tmp\n");
    let long = run(json!({"workspace_ids": ["a", "b"], "commands": "printf 123456; printf abcdef >&2",
        "max_output_bytes": 5}));
    for entry in long["results"].as_array().unwrap() {
        assert!(entry["stdout"].as_str().unwrap().starts_with("12345\n[TRUNCATED 6 bytes"), "{entry}");
        assert!(entry["stderr"].as_str().unwrap().starts_with("abcde\n[TRUNCATED 6 bytes"), "{entry}");
    }

    let refused = |arguments: Value| client.tool_error("exec_parallel", arguments);
    refused(json!({"workspace_ids": [], "commands": "touch /ran"}))
        .mentions(&["workspace_ids", "must have 1 to 20"]);
    refused(json!({"workspace_ids": vec!["a"; 21], "commands": "touch /ran"}))
        .mentions(&["must have 1 to 20"]);
    refused(json!({"workspace_ids": ["a", "b"], "commands": ["touch /ran"]})).mentions(&["1 entries for 2"]);
    refused(json!({"workspace_ids": ["a", "nobody"], "commands": "touch /ran"})).mentions(&["nobody"]);
    refused(json!({"workspace_ids": ["a"], "commands": "touch /ran", "env": {"LD_X": "1"}}))
        .mentions(&["LD_X"]);
    b.stop();
    refused(json!({"workspace_ids": ["a", "b"], "commands": "touch /ran"}))
        .mentions(&["b", "workspace_start"]);
    let other = host.client();
    let stranger = other.workspace_with(json!({"name": "stranger"}));
    refused(json!({"workspace_ids": ["a", "stranger"], "commands": "touch /ran"}))
        .mentions(&["belongs to another session"]);
    stranger.destroy();
    assert_ne!(a.exec("test -e /ran").exit_code, 0, "nothing ran where one of them was wrong");
}

#[test]
fn earlier_tool_names_still_work() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let started = ws.tool("exec_background", json!({"command": "echo hi; sleep 1000"})).json();
    assert_eq!(started, json!({"job_id": 1, "status": "started"}), "an action may be left out");
    eventually("it prints", Duration::from_secs(30), || {
        ws.tool("exec_poll", json!({"job_id": 1})).json()["stdout"] == "hi\n"
    });
    assert_eq!(ws.tool("exec_kill", json!({"job_id": 1})).json()["status"], "killed");
    assert_eq!(ws.tool("workspace_exec", json!({"command": "echo old"})).json()["stdout"], "old\n");
    assert_eq!(ws.tool("workspace_ip", json!({})).json()["ip"], ws.created["ip"]);
    std::fs::create_dir_all(host.data().join("transfers")).expect("a directory");
    std::fs::write(host.data().join("transfers/f"), "text").expect("written");
    ws.tool("file_upload", json!({"host_path": "f", "guest_path": "/f"})).mentions(&["uploaded", "4 bytes"]);
    ws.tool("file_download", json!({"host_path": "g", "guest_path": "/f"})).mentions(&["downloaded"]);
    assert_eq!(std::fs::read(host.data().join("transfers/g")).expect("read"), b"text");
}

#[test]
fn cli_runs_lists_and_kills_jobs() {
    let host = host_or_skip!();
    host.cli_ok(&["create", "box"]);
    let job = host.cli_ok(&["exec", "-d", "box", "--", "echo out; echo err >&2; sleep 2; echo end"]);
    assert_eq!(job, "1\n");
    let followed = host.cli(&["jobs", "show", "box", "1", "--follow"]);
    assert_eq!(String::from_utf8_lossy(&followed.stdout), "out\nend\n");
    assert_eq!(String::from_utf8_lossy(&followed.stderr), "err\n");
    host.cli_ok(&["exec", "-d", "box", "--", "sleep", "1000"]);
    let listed: Value = serde_json::from_str(&host.cli_ok(&["jobs", "ls", "box", "--json"])).expect("JSON");
    assert_eq!((&listed[0]["exit_code"], &listed[1]["running"]), (&json!(0), &json!(true)), "{listed}");
    assert!(host.cli_ok(&["jobs", "ls", "box"]).contains("running"));
    assert!(host.cli_ok(&["jobs", "kill", "box", "2"]).contains("has ended"));
    let wrong = host.cli(&["jobs", "show", "box", "9"]);
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("no job 9"));
}
