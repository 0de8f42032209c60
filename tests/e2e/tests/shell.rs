//! The command line, as a person or a script uses it.

use std::process::Output;

use agentiso_testkit::{HostOptions, TestHost, host_or_skip};
use serde_json::Value;

fn refused(output: &Output, parts: &[&str]) {
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in {stderr:?}");
    }
}

fn json(host: &TestHost, arguments: &[&str]) -> Value {
    let text = host.cli_ok(arguments);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
}

#[test]
fn without_templates_every_machine_boots() {
    let config = "[vm]\ntemplates = false\n".to_owned();
    let host = host_or_skip!(HostOptions { config, ..HostOptions::default() });
    let created = json(&host, &["create", "box", "--json"]);
    assert_eq!(created["rung"], "cold_boot", "{created}");
    host.cli_ok(&["stop", "box"]);
    host.cli_ok(&["start", "box"]);
    assert_eq!(json(&host, &["ps", "--json"])[0]["rung"], "cold_boot");
}

#[test]
fn a_machine_from_the_shell() {
    let host = host_or_skip!();
    host.cli_ok(&["create", "box"]);
    assert!(host.cli_ok(&["ps"]).contains("box"));
    let listed = json(&host, &["ps", "--json"]);
    assert_eq!(listed[0]["name"], "box");

    let output = host.cli(&["exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (b"out\n".as_slice(), b"err\n".as_slice())
    );
    assert_eq!(
        host.cli_ok(&["exec", "box", "--", "echo", "a b", "$HOME;'"]),
        "a b $HOME;'\n",
        "arguments stay as they are"
    );

    assert!(host.cli_ok(&["logs", "box"]).len() > 1);
    host.cli_ok(&["stop", "box"]);
    refused(&host.cli(&["exec", "box", "--", "true"]), &["not running"]);
    let status = host.cli_ok(&["status"]);
    assert!(status.contains("box") && status.contains("stopped"), "{status}");
    host.cli_ok(&["start", "box"]);
    assert_eq!(host.cli_ok(&["exec", "box", "--", "hostname"]), "box\n");
    host.cli_ok(&["rm", "box"]);
    assert_eq!(json(&host, &["ps", "--json"]), serde_json::json!([]));
    host.assert_no_workspaces_left();
}

#[test]
fn the_shell_sees_and_uses_what_clients_made() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace_with(serde_json::json!({"name": "theirs"}));
    assert_eq!(host.cli_ok(&["exec", "theirs", "--", "hostname"]), "theirs\n");
    assert_eq!(
        host.cli_ok(&["exec", &ws.id[..8], "--", "hostname"]),
        "theirs\n",
        "a unique prefix of the id will do"
    );
    assert_eq!(ws.sh("echo still mine"), "still mine");
}

#[test]
fn mistakes_are_explained() {
    let host = host_or_skip!();
    refused(&host.cli(&["exec", "nobody", "--", "true"]), &["nobody"]);
    refused(&host.cli(&["create", "a b"]), &["name"]);
    refused(&host.cli(&["rm", "nobody"]), &["nobody"]);
    refused(&host.cli(&["no-such-command"]), &["no-such-command"]);
    std::fs::write(host.config_path(), "[resources]\nmax_vcpus = 0\n").unwrap();
    refused(&host.cli(&["ps"]), &["max_vcpus"]);
    std::fs::write(host.config_path(), "[resources\n").unwrap();
    refused(&host.cli(&["serve"]), &["config"]);
    std::fs::remove_file(host.config_path()).unwrap();
    refused(&host.cli(&["ps"]), &["config.toml"]);
}

#[test]
fn status_needs_no_daemon_and_flags_what_died() {
    let host = host_or_skip!();
    assert!(host.cli(&["status"]).status.success());
    assert!(host.daemon().is_none(), "status started a daemon");
    host.cli_ok(&["create", "victim"]);
    let machine = agentiso_testkit::Process::open(host.machines()[0]).unwrap();
    host.kill_daemon();
    machine.kill();
    let status = host.cli_ok(&["status"]);
    assert!(status.contains("victim") && status.contains("dead"), "{status}");
}

#[test]
fn a_check_says_what_was_picked() {
    let host = host_or_skip!();
    let text = host.cli_ok(&["check"]);
    for part in ["qemu", "kernel", "debian-minimal", "accelerator"] {
        assert!(text.to_lowercase().contains(part), "{part} is not in {text}");
    }
    assert!(json(&host, &["check", "--json"]).is_object());
}
