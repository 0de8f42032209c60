//! The CLI, as a person or a script uses it.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use agentiso_testkit::{
    HostOptions, Process, TestHost, eventually, host_or_skip, processes_mentioning, record_skip,
};
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
fn disabled_templates_force_a_cold_boot() {
    let config = "[vm]\ntemplates = false\n".to_owned();
    let host = host_or_skip!(HostOptions { config, ..HostOptions::default() });
    let created = json(&host, &["create", "box", "--json"]);
    assert_eq!(created["rung"], "cold_boot", "{created}");
    host.cli_ok(&["stop", "box"]);
    host.cli_ok(&["start", "box"]);
    assert_eq!(json(&host, &["ps", "--json"])[0]["rung"], "cold_boot");
}

#[test]
fn daemon_closes_descriptors_of_its_starter() {
    let host = host_or_skip!();
    // Not close-on-exec, like the descriptors of shell redirections and `flock`.
    let (mut ours, closing) = std::io::pipe().unwrap();
    let theirs = rustix::io::dup(&closing).unwrap();
    drop(closing);
    host.cli_ok(&["ps"]);
    drop(theirs);
    assert!(host.daemon().is_some(), "it was started and goes on");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(ours.read(&mut [0]).unwrap()));
    let read = end.recv_timeout(Duration::from_secs(20)).expect("nobody has the other end any more");
    assert_eq!(read, 0);
}

#[test]
fn cli_creates_uses_and_removes_a_workspace() {
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
fn cli_uses_workspaces_of_clients() {
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
fn cli_errors_name_the_mistake() {
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
fn status_flags_dead_vms_without_a_daemon() {
    let host = host_or_skip!();
    assert!(host.cli(&["status"]).status.success());
    assert!(host.daemon().is_none(), "status started a daemon");
    host.cli_ok(&["create", "victim"]);
    let vm = Process::open(host.vms()[0]).unwrap();
    host.kill_daemon();
    vm.kill();
    let status = host.cli_ok(&["status"]);
    assert!(status.contains("victim") && status.contains("dead"), "{status}");
}

#[test]
fn check_lists_the_chosen_components() {
    let host = host_or_skip!();
    let text = host.cli_ok(&["check"]);
    for part in ["qemu", "kernel", "debian-minimal", "accelerator"] {
        assert!(text.to_lowercase().contains(part), "{part} is not in {text}");
    }
    assert!(json(&host, &["check", "--json"]).is_object());
}

#[test]
fn serve_on_a_terminal_waits_for_signals() {
    let host = host_or_skip!();
    let serve = format!("{} serve -c {}", host.program().display(), host.config_path().display());
    let mut script = Command::new("script");
    script.args(["-qec", &serve, "/dev/null"]).env("RUST_LOG", "warn");
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = match script.spawn() {
        Ok(terminal) => terminal,
        Err(error) => return record_skip(&format!("no terminal: script cannot be started: {error}")),
    };
    let typed = terminal.stdin.take();
    let is_serve = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(host.program().as_os_str().as_encoded_bytes())
            && line.windows(7).any(|part| part == b"\0serve\0")
    };
    let find = || processes_mentioning(host.dir()).into_iter().find(is_serve);
    eventually("serve has started the daemon", Duration::from_secs(60), || {
        host.daemon().is_some() && find().is_some()
    });
    let serving = Process::open(find().unwrap()).unwrap();
    assert!(!serving.ends_within(Duration::from_secs(1)), "it waits");
    serving.signal(rustix::process::Signal::TERM);
    serving.wait_gone(Duration::from_secs(30));
    drop(typed);
    let mut shown = String::new();
    terminal.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(terminal.wait().unwrap().success());
    assert!(shown.contains("terminal") && !shown.contains("jsonrpc"), "{shown}");
    assert!(host.daemon().is_some(), "the daemon goes on");
}

#[test]
fn cli_has_the_commands_of_the_contract() {
    let host = host_or_skip!();
    let text = |arguments: &[&str]| {
        let output = host.cli(arguments);
        let all = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(all).unwrap())
    };
    assert!(!host.data().join("transfers").exists());
    assert_eq!(text(&["check"]).0, Some(0));
    assert!(host.data().join("transfers").is_dir(), "made if it is missing");
    let (code, said) = text(&["init", "--yes", "--pool-path", "/nosuch"]);
    assert!(code == Some(0) && said.contains("--pool-path is ignored"), "what is there is kept: {said}");

    let config = std::fs::read_to_string(host.config_path()).unwrap();
    std::fs::write(host.config_path(), config.replace("[server]\n", "[server]\ntools = \"core\"\n")).unwrap();
    let listed = |client: &agentiso_testkit::Client| {
        let list = client.request("tools/list", serde_json::json!({})).result();
        list["tools"].as_array().unwrap().len()
    };
    let client = host.client();
    assert_eq!(listed(&client), 8, "as the configuration says");
    let wide = host.raw_client(&["--tools", "full"]);
    wide.initialize();
    assert_eq!(listed(&wide), 31, "unless the command says otherwise");
    let ws = client.workspace_with(serde_json::json!({"name": "box"}));
    let (id, ip) = (ws.id.clone(), ws.created["ip"].as_str().unwrap().to_owned());
    drop((client, wide));
    let (code, status) = text(&["status"]);
    assert_eq!(code, Some(0));
    let header = status.lines().find(|line| line.starts_with("NAME")).unwrap();
    assert_eq!(
        header.split_whitespace().collect::<Vec<_>>(),
        ["NAME", "STATE", "IP", "IMAGE", "CREATED", "SNAPSHOTS"]
    );
    let row = status.lines().find(|line| line.starts_with("box ")).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        (&row[..4], row.last()),
        (&["box", "running", &ip, "debian-minimal"][..], Some(&"0")),
        "{status}"
    );
    let state = status.lines().find(|line| line.starts_with("state: ")).unwrap();
    assert!(state.contains(", saved ") && state.ends_with(" ago"), "{state}");
    let (_, logs) = text(&["logs", "box"]);
    assert!(logs.contains("ready as box"), "{logs}");
    let dir = host.data().join("workspaces").join(&id);
    let more: String = (1..=60).map(|number| format!("line {number}\n")).collect();
    for log in ["console.log", "stderr.log"] {
        let mut file = std::fs::OpenOptions::new().append(true).open(dir.join(log)).unwrap();
        file.write_all(more.as_bytes()).unwrap();
    }
    let (code, logs) = text(&["logs", &id[..8]]);
    let (console, qemu) = logs.split_once("--- QEMU\n").unwrap();
    let last = more.split_inclusive('\n').skip(10).collect::<String>();
    assert_eq!((code, console), (Some(0), format!("--- console\n{last}").as_str()), "50 lines");
    assert!(qemu.ends_with(&more), "all that QEMU said: {qemu}");
    assert!(text(&["logs", "box", "-n", "0"]).1.contains("console: empty"));
    assert_eq!(text(&["logs", "nobody"]).0, Some(1));
    assert_eq!(text(&["team-status", "nobody"]).0, Some(1));
    host.cli_ok(&["rm", "box"]);
    host.stop_daemon();

    std::fs::write(host.state_file(), "{ not json").unwrap();
    let (code, status) = text(&["status"]);
    assert!(code == Some(0) && status.contains("state: unreadable"), "{status}");
    let config = std::fs::read_to_string(host.config_path()).unwrap();
    std::fs::write(host.config_path(), format!("{config}[vm]\nkernel_path = \"/nosuch/vmlinuz\"\n")).unwrap();
    let (code, found) = text(&["check"]);
    assert!(code == Some(1) && found.contains("/nosuch/vmlinuz"), "{found}");
    std::fs::write(host.config_path(), "[network]\nsubnet_prefix = 31\n").unwrap();
    for command in [
        ["check"].as_slice(),
        &["status"],
        &["serve"],
        &["logs", "x"],
        &["team-status", "x"],
        &["init", "-y"],
    ] {
        let (code, said) = text(command);
        assert!(code != Some(0) && said.contains("subnet_prefix"), "{command:?}: {said}");
    }
}
