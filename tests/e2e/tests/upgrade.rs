//! Upgrades: this build takes over running VMs of an older version, and refuses files of a newer version.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_e2e::guest::{page, policy, serve};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{
    Client, HostOptions, LONG, TestHost, TestWorkspace, eventually, host_or_skip, older_binary, record_skip,
};
use serde_json::{Value, json};

/// A process that counts into a file and keeps its count only in memory.
const COUNT: &str = "nohup sh -c 'n=0; while :; do n=$((n+1)); echo $n > /tmp/n; mv /tmp/n /tmp/count; sleep 0.05; done' \
                     >/dev/null 2>&1 & echo $!";

fn count(ws: &TestWorkspace<'_>) -> u64 {
    ws.sh("cat /tmp/count 2>/dev/null || echo 0").parse().expect("a number")
}

/// Checks that the process with this pid is alive and still counts.
fn counts_on(ws: &TestWorkspace<'_>, pid: &str) {
    ws.sh(&format!("kill -0 {pid}"));
    let from = count(ws);
    eventually("the process counts on", LONG, || count(ws) > from);
}

/// A host without templates: every VM boots with the agent of the build that starts it.
fn options() -> HostOptions {
    HostOptions { config: "[vm]\ntemplates = false\n".to_owned(), own_cache: true, ..HostOptions::default() }
}

/// The fields of the workspace list that must not change.
fn known(client: &Client) -> Vec<[Value; 4]> {
    let list = client.tool("workspace_list", json!({})).json();
    let list = list.as_array().unwrap_or_else(|| panic!("not a list: {list}"));
    let of = |one: &Value| ["workspace_id", "name", "ip", "state"].map(|key| one[key].clone());
    let mut known: Vec<_> = list.iter().map(of).collect();
    known.sort_by_key(|one| one[0].to_string());
    known
}

/// The data that a port of this host sends.
fn greeting(port: u64) -> String {
    let mut text = String::new();
    let connected = TcpStream::connect(("127.0.0.1", u16::try_from(port).expect("a port")));
    let Ok(mut stream) = connected else { return "refused".to_owned() };
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let _ = stream.read_to_string(&mut text);
    text
}

fn jail(ws: &TestWorkspace<'_>) -> Value {
    ws.info()["jail"].clone()
}

/// The number of workspaces whose VMs have no jail according to `check`.
fn unjailed(host: &TestHost) -> usize {
    let checked: Value = serde_json::from_slice(&host.cli(&["check", "--json"]).stdout).expect("JSON");
    let outcomes = checked["checks"].as_array().unwrap_or_else(|| panic!("no checks in {checked}"));
    let jail = outcomes.iter().find(|outcome| outcome["name"] == "jail").expect("a line about the jail");
    let detail = jail["detail"].as_str().expect("a text");
    detail.split_once("; running without a jail: ").map_or(0, |(_, names)| names.split(", ").count())
}

/// The hash of the agent in a guest.
fn agent(ws: &TestWorkspace<'_>) -> String {
    ws.sh("sha256sum < /proc/1/exe")
}

fn layers(host: &TestHost, ws: &TestWorkspace<'_>) -> usize {
    let dir = host.data().join("workspaces").join(&ws.id);
    let files = std::fs::read_dir(dir).expect("a directory").flatten();
    files.filter(|file| file.path().extension().is_some_and(|ending| ending == "qcow2")).count()
}

/// Kills the daemon and starts another build on the same files.
fn upgrade(host: &mut TestHost, client: Client, to: &Path) -> Client {
    host.kill_daemon();
    drop(client);
    host.switch_to(to);
    let client = host.client();
    client.tool("workspace_adopt", json!({}));
    client
}

/// The older binary; without one, records a skip and returns from the test.
macro_rules! older_or_skip {
    () => {
        match older_binary() {
            Some(older) => older,
            None => {
                record_skip(
                    "no older agentiso: its commit is not in this clone, or ./x test did not build it",
                );
                return;
            }
        }
    };
}

#[test]
fn running_vms_survive_an_upgrade() {
    let older = older_or_skip!();
    lets_vms_run_on(host_or_skip!(options()), &older);
}

/// An ordinary user has another kind of jail, and cannot change the owner of files.
#[test]
fn running_vms_survive_an_unprivileged_upgrade() {
    let older = older_or_skip!();
    if !rustix::process::geteuid().is_root() {
        record_skip("it is what running_vms_survive_an_upgrade does if root does not run it");
        return;
    }
    lets_vms_run_on(host_or_skip!(HostOptions { privileged: false, ..options() }), &older);
}

fn lets_vms_run_on(mut host: TestHost, older: &Path) {
    let current = host.program().to_owned();
    host.switch_to(older);
    let client = host.client();
    let ws = client.workspace_with(json!({"name": "web"}));
    let pid = ws.sh(COUNT);
    ws.sh("echo one > /root/file; head -c 3000000 /dev/urandom > /root/blob");
    ws.snapshot("disk");
    ws.sh("echo two > /root/file; head -c 3000000 /dev/urandom > /root/blob");
    ws.snapshot_with_memory("live");
    let export = host.dir().join("live.agentiso");
    let export = export.to_str().expect("UTF-8");
    host.cli_ok(&["snapshot", "export", "web", "live", export]);
    ws.sh("echo three > /root/file");
    let blob = ws.sh("sha256sum < /root/blob");
    let idea = ws.fork_with("disk", json!({"new_name": "idea"})).id;
    serve(&ws, 8080, "0.0.0.0");
    let forward = ws.tool("port_forward", json!({"action": "add", "guest_port": 8080})).json();
    let port = forward["host_port"].as_u64().expect("a port");
    policy(&ws, json!({"allow_domains": ["good.test"]}));
    let start = json!({"action": "start", "command": "echo begun; while ! test -e /root/end; do sleep 0.1; done; echo ended"});
    let job = ws.tool("exec_background", start).json()["job_id"].clone();
    let team = json!({"action": "create", "name": "crew", "roles": [{"name": "lead", "role": "worker"}]});
    client.tool("team", team);
    let mail = json!({"action": "message", "name": "crew", "agent": "lead", "to": "lead", "content": "hi"});
    client.tool("team", mail);
    let (id, before, vms, old_agent) = (ws.id.clone(), known(&client), host.vms(), agent(&ws));
    assert_eq!((before.len(), vms.len()), (3, 3), "{before:?}");
    assert_eq!(host.state()["schema_version"], 4, "the older build is of its time");

    // The VMs were started by the older build; the daemon is of this build.
    let client = upgrade(&mut host, client, &current);
    assert_eq!((known(&client), host.vms()), (before, vms));
    let ws = client.existing(&id);
    assert_eq!(jail(&ws), "none", "it was started without one and cannot be put into one");
    assert_eq!(unjailed(&host), 3);
    counts_on(&ws, &pid);
    assert_eq!(ws.sh("cat /root/file"), "three");
    assert_eq!(ws.info()["network"]["allow_domains"], json!(["good.test"]));
    eventually("the server answers", LONG, || greeting(port) == "hello\n");
    ws.sh("touch /root/end");
    let poll = json!({"action": "poll", "job_id": job, "wait_secs": 60});
    assert_eq!(ws.tool("exec_background", poll).json()["stdout"], "begun\nended\n");
    let receive = json!({"action": "receive", "name": "crew", "agent": "lead"});
    let received = client.tool("team", receive).json();
    assert_eq!((&received["count"], &received["messages"][0]["content"]), (&json!(1), &json!("hi")));

    // A file exported by the older build is imported with its memory.
    let imported = host.cli_ok(&["snapshot", "import", export, "carried", "--json"]);
    let imported: Value = serde_json::from_str(&imported).expect("JSON");
    assert_eq!((&imported["rung"], &imported["warning"]), (&json!("memory"), &Value::Null), "{imported}");
    let look = format!("kill -0 {pid} && cat /root/file");
    assert_eq!(host.cli_ok(&["exec", "carried", "--", "sh", "-c", &look]), "two\n");
    host.cli_ok(&["rm", "carried"]);

    // Layers are added and merged while the VM runs: QEMU of the older build opened some of them by itself.
    assert_eq!(ws.snapshot_with_memory("again").json()["has_memory"], true);
    counts_on(&ws, &pid);
    ws.snapshot("last");
    client.existing(&idea).destroy();
    let layers_before = layers(&host, &ws);
    ws.delete_snapshot("disk");
    assert_eq!(layers(&host, &ws), layers_before - 1, "what only that snapshot needed is merged");
    let forked = ws.fork_with("last", json!({"new_name": "disk-only"}));
    assert_eq!(
        (forked.sh("cat /root/file"), forked.sh("sha256sum < /root/blob")),
        ("three".to_owned(), blob.clone())
    );
    let held = jail(&forked);
    assert_ne!(agent(&forked), old_agent, "what is started has the agent of this build");
    forked.destroy();
    ws.delete_snapshot("last");
    counts_on(&ws, &pid);
    assert_eq!(ws.sh("sha256sum < /root/blob"), blob);

    // Memory snapshots taken by the older build, and by this build of a VM that the older one started.
    let forked = ws.fork_with("live", json!({"new_name": "alive"}));
    counts_on(&forked, &pid);
    assert_eq!((forked.sh("cat /root/file"), jail(&forked)), ("two".to_owned(), held.clone()));
    assert_eq!(agent(&forked), old_agent, "it is in the memory");
    forked.destroy();
    for (snapshot, content) in [("again", "three"), ("live", "two")] {
        ws.restore(snapshot).mentions(&["processes go on"]);
        counts_on(&ws, &pid);
        assert_eq!((ws.sh("cat /root/file").as_str(), jail(&ws)), (content, held.clone()));
    }
    assert_eq!(ws.snapshot_with_memory("anew").json()["has_memory"], true, "the agent is the older build's");
    ws.delete_snapshot("live");
    ws.delete_snapshot("again");
    ws.restore("anew").mentions(&["processes go on"]);
    counts_on(&ws, &pid);

    // A stop and start brings the agent and the jail of this build.
    let lead = client.existing("crew.lead");
    assert_eq!((jail(&lead), agent(&lead)), (json!("none"), old_agent.clone()));
    for ws in [&ws, &lead] {
        ws.stop();
        ws.start();
        assert_eq!(jail(ws), held);
        assert_ne!(agent(ws), old_agent);
    }
    assert_eq!(ws.sh("cat /root/file"), "two");
    assert_eq!(unjailed(&host), 0);
    ws.destroy();
    client.tool("team", json!({"action": "destroy", "name": "crew"}));
    host.assert_no_workspaces_left();
}

#[test]
fn bridge_vms_survive_an_upgrade() {
    let older = older_or_skip!();
    let internet = internet_or_skip!();
    let links =
        || internet.sh_at_host("ip -o link show | cut -d: -f2 | cut -d@ -f1 | grep -E 'aiso|br-' || true");
    let options = internet.host_options("backend = \"bridge\"\n");
    let mut host = host_or_skip!(HostOptions { own_cache: true, ..options });
    let current = host.program().to_owned();
    host.switch_to(&older);
    let client = host.client();
    let ws = client.workspace();
    policy(&ws, json!({"allow_domains": ["good.test"]}));
    let open = page(&ws, "good.test").result;
    assert!(open.contains("good.test"), "{open}");
    let (id, before) = (ws.id.clone(), links());

    let client = upgrade(&mut host, client, &current);
    let ws = client.existing(&id);
    assert_eq!(links(), before);
    page(&ws, "good.test").is(&open);
    assert_ne!(page(&ws, "bad.test").result, open);
    policy(&ws, json!({"allow_domains": []}));
    assert_ne!(page(&ws, "good.test").result, open, "a change reaches the rules that the older build made");
    policy(&ws, json!({"allow_domains": ["good.test"]}));
    ws.stop();
    ws.start();
    page(&ws, "good.test").is(&open);
    ws.destroy();
    assert!(!links().contains("aiso"), "{}", links());
    host.assert_no_workspaces_left();
}

/// Every file below a directory, with its content.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        match entry.path().is_dir() {
            true => found.extend(contents(&entry.path())),
            false => found.push((entry.path(), std::fs::read(entry.path()).expect("a file"))),
        }
    }
    found.sort();
    found
}

#[test]
fn files_of_a_newer_version_are_not_touched() {
    let host = TestHost::start();
    let workspace = host.data().join("workspaces/4e9e3b80-0a89-41f1-8b7c-3a3c93bb7bc7");
    std::fs::create_dir_all(&workspace).expect("a directory");
    std::fs::write(workspace.join("disk.qcow2"), "a disk").expect("a file");
    std::fs::write(host.state_file(), r#"{"schema_version": 6, "workspaces": "in a form to come"}"#)
        .expect("a file");
    let kept = |host: &TestHost| {
        (contents(&host.data().join("workspaces")), std::fs::read(host.state_file()).unwrap())
    };
    let before = kept(&host);
    for arguments in [["ps"], ["serve"]] {
        let refused = host.cli(&arguments);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && stderr.contains("newer"), "{arguments:?}: {stderr}");
    }
    assert_eq!(kept(&host), before);
    assert!(host.daemon().is_none());
}
