//! `agentiso orchestrate`: a batch of prompts, with a script in place of the AI.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use agentiso_testkit::{HostOptions, TestHost, eventually, host_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const SECRET: &str = "sk-test-4711-do-not-keep";

/// Prints its input and acts on the prompt.
const AGENT: &str = r#"#!/bin/sh
[ "$1" = -p ] || exit 9
echo "prompt: $2"
echo "key of ${#ANTHROPIC_API_KEY} characters in $(pwd)"
cat
case "$2" in
  *fail*) echo "cannot" >&2; exit 3 ;;
  *wait*) sleep 1000 ;;
esac
"#;

fn tasks(host: &TestHost, snapshot: &str, tasks: &str) {
    // A file without `snapshot_name` uses the contract's default, `golden`.
    let named =
        if snapshot == "golden" { String::new() } else { format!("snapshot_name = \"{snapshot}\"\n") };
    let text = format!("golden_workspace = \"gold\"\n{named}{tasks}");
    std::fs::write(host.dir().join("tasks.toml"), text).unwrap();
}

fn command(host: &TestHost, more: &[&str]) -> std::process::Command {
    let mut command = host.command();
    command.current_dir(host.dir()).env("TEAM_KEY", SECRET).args([
        "orchestrate",
        "--task-file",
        "tasks.toml",
    ]);
    command.args(["--api-key-env", "TEAM_KEY", "--config"]).arg(host.config_path()).args(more);
    command
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The result directories of all runs so far.
fn runs(host: &TestHost) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(host.dir().join("orchestrate-results")).into_iter().flatten();
    let mut all: Vec<_> = all.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a directory that contain these bytes.
fn mentioned(directory: &Path, secret: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(mentioned(&path, secret));
        } else if kind.is_file()
            && std::fs::read(&path)
                .is_ok_and(|bytes| bytes.windows(secret.len()).any(|part| part == secret.as_bytes()))
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn orchestrate_runs_prompts_and_keeps_results() {
    let vault = tempfile::tempdir().unwrap();
    std::fs::write(vault.path().join("api.md"), "the api is small\n").unwrap();
    let config = format!("[vault]\nenabled = true\npath = \"{}\"\n", vault.path().display());
    let host = host_or_skip!(HostOptions { config, ..HostOptions::default() });
    let client = host.client();
    client.tool("workspace_create", json!({"name": "gold"}));
    let snapshot = |name: &str| {
        client.tool("snapshot", json!({"workspace_id": "gold", "action": "create", "name": name}))
    };
    snapshot("bare");
    let agent =
        json!({"workspace_id": "gold", "path": "/usr/local/bin/claude", "content": AGENT, "mode": "0755"});
    client.tool("file_write", agent);
    snapshot("golden");

    let two = "[[tasks]]\nname = \"good\"\nprompt = \"say it's \\\"fine\\\"\"\n\
               [[tasks.vault_context]]\nquery = \"api\"\n\
               [[tasks]]\nname = \"bad\"\nprompt = \"fail\"\nworkdir = \"/tmp\"\n";
    tasks(&host, "golden", two);
    let planned = command(&host, &["--dry-run"]).output().unwrap();
    let plan = words(&planned);
    assert!(planned.status.success(), "{plan}");
    for part in ["orch-good", "orch-bad", "gold at golden", "TEAM_KEY (set)", "search api", "nothing was run"]
    {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    assert!(runs(&host).is_empty() && host.vms().len() == 1 && !plan.contains(SECRET));
    let mut plain = host.command();
    plain.current_dir(host.dir()).env("ANTHROPIC_API_KEY", SECRET).arg("-c").arg(host.config_path());
    let planned = plain.args(["orchestrate", "--task-file", "tasks.toml", "--dry-run"]).output().unwrap();
    let plan = words(&planned);
    assert!(plan.contains("10 tasks at a time") && plan.contains("ANTHROPIC_API_KEY (set)"), "{plan}");

    let ran = command(&host, &["--max-parallel", "2"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", words(&ran));
    let [run] = &runs(&host)[..] else { panic!("one run: {:?}", runs(&host)) };
    let summary: Value = serde_json::from_str(&read(&run.join("summary.json"))).unwrap();
    assert_eq!((&summary["success_count"], &summary["failure_count"]), (&json!(1), &json!(1)), "{summary}");
    let length = SECRET.len();
    assert_eq!(
        read(&run.join("good/stdout.txt")),
        format!(
            "prompt: say it's \"fine\"\nkey of {length} characters in /workspace\n# Project Knowledge Base\n\n\
             ## Search: api\n\napi.md, line 1:\n\nthe api is small\n"
        )
    );
    assert_eq!(read(&run.join("bad/stderr.txt")), "cannot\n");
    assert!(read(&run.join("bad/stdout.txt")).contains("in /tmp\n"));
    let meta: Value = serde_json::from_str(&read(&run.join("bad/meta.json"))).unwrap();
    assert_eq!((&meta["exit_code"], &meta["success"]), (&json!(3), &json!(false)));
    assert!(meta["workspace_id"].is_string());
    assert_eq!(host.vms().len(), 1, "the workers are gone");
    for file in [host.data().join("daemon.log"), host.state_file()] {
        assert!(!read(&file).contains(SECRET), "{}", file.display());
    }
    assert_eq!(mentioned(&host.dir().join("orchestrate-results"), SECRET), Vec::<std::path::PathBuf>::new());

    tasks(&host, "bare", "[[tasks]]\nname = \"a\"\nprompt = \"x\"\n");
    let without = command(&host, &[]).output().unwrap();
    assert_eq!(without.status.code(), Some(1));
    assert!(words(&without).contains("neither claude nor opencode"), "{}", words(&without));

    // Workers have fixed names. If one is taken, the error names it and nothing is run.
    let before = runs(&host).len();
    client.tool(
        "workspace_fork",
        json!({"workspace_id": "gold", "snapshot_name": "bare", "new_name": "orch-a"}),
    );
    let refused = command(&host, &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", words(&refused));
    assert!(
        words(&refused).contains("orch-a") && words(&refused).contains("agentiso rm"),
        "{}",
        words(&refused)
    );
    client.tool("workspace_destroy", json!({"workspace_id": "orch-a"}));
    assert_eq!((runs(&host).len(), host.vms().len()), (before, 1));

    // An interrupted run leaves nothing behind.
    tasks(&host, "golden", "[[tasks]]\nname = \"long\"\nprompt = \"wait\"\n");
    let child = command(&host, &[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the worker runs", Duration::from_secs(120), || host.vms().len() == 2);
    // A second run is refused meanwhile, also with other task names.
    tasks(&host, "golden", "[[tasks]]\nname = \"other\"\nprompt = \"x\"\n");
    let second = command(&host, &[]).output().unwrap();
    let told = words(&second);
    assert_eq!(second.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("another agentiso orchestrate (pid {})", child.id())), "{told}");
    assert!(command(&host, &["--dry-run"]).output().unwrap().status.success(), "looking is not running");
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let interrupted = child.wait_with_output().unwrap();
    assert_eq!(interrupted.status.code(), Some(130), "{}", words(&interrupted));
    eventually("the worker is gone", Duration::from_secs(60), || host.vms().len() == 1);
    assert_eq!(runs(&host).len(), before);
    // The lock ends with the process, not with the daemon or its VMs.
    let next = command(&host, &[]).output().unwrap();
    assert!(next.status.success(), "{}", words(&next));
    client.tool("workspace_destroy", json!({"workspace_id": "gold"}));
    host.assert_no_workspaces_left();
}

#[test]
fn bad_task_file_starts_nothing() {
    let host = host_or_skip!();
    tasks(&host, "golden", "[[tasks]]\nname = \"../x\"\nprompt = \"x\"\n");
    let refused = command(&host, &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
    assert!(words(&refused).contains("task name"), "{}", words(&refused));
    tasks(&host, "golden", "[[tasks]]\nname = \"x\"\nprompt = \"x\"\n");
    let keyless = command(&host, &[]).env_remove("TEAM_KEY").output().unwrap();
    assert_eq!(keyless.status.code(), Some(2), "{}", words(&keyless));
    assert!(words(&keyless).contains("TEAM_KEY"), "{}", words(&keyless));
    assert!(runs(&host).is_empty() && host.daemon().is_none());
}
