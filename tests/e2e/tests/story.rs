//! One complete workflow: a repository is prepared, a server is started in it, four forks change it in parallel, their
//! work is merged in three ways and pushed, and nothing is left.

use std::time::Duration;

use agentiso_e2e::internet::Internet;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Client, TestHost, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

/// Sends a random number to every client. The number is drawn at the start and exists only in memory.
const SERVE: &str = "\
import random, socket
secret = str(random.getrandbits(64)).encode()
server = socket.create_server((\"0.0.0.0\", 8080))
while True:
    client, _ = server.accept()
    with client:
        client.sendall(secret)
";

/// The repository's tests: every part has one line, and the server in the same guest answers.
const CHECK: &str = "\
import glob, socket
parts = {name: open(name).read() for name in sorted(glob.glob('part-*.txt'))}
assert len(parts) == 4 and all(text.count('\\n') == 1 for text in parts.values()), parts
with socket.create_connection((\"127.0.0.1\", 8080), 20) as server:
    print(server.recv(100).decode(), sum(text == 'done\\n' for text in parts.values()))
";

const COMMITS: [&[(&str, &str)]; 4] = [
    &[("README", "four parts and a server\n")],
    &[("serve.py", SERVE)],
    &[("part-1.txt", "open\n"), ("part-2.txt", "open\n"), ("part-3.txt", "open\n"), ("part-4.txt", "open\n")],
    &[("check.py", CHECK)],
];

const REPOSITORY: &str = "app.git";

/// One task per part: it changes its own file, runs the tests, and commits.
fn tasks() -> Value {
    let task = |number: u32| {
        let command = format!(
            "echo done > part-{number}.txt && python3 check.py && git commit -q -a -m 'part {number} is done'"
        );
        json!({"name": format!("part-{number}"), "command": command})
    };
    (1..=4).map(task).collect()
}

/// Runs the tasks in four forks and returns the answer. Every task has reached the server, and seen one finished part.
fn swarm(client: &Client, secret: &str, more: Value) -> Value {
    let mut arguments = json!({"golden_workspace": "app", "snapshot_name": "live", "tasks": tasks()});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let done = client.tool("swarm_run", arguments).json();
    for number in 0..4 {
        assert_eq!(done["tasks"][number]["stdout"], format!("{secret} 1\n"), "{done}");
    }
    assert_eq!((&done["summary"]["succeeded"], &done["summary"]["failed"]), (&json!(4), &json!(0)), "{done}");
    done
}

fn names(client: &Client) -> Vec<String> {
    let list = client.tool("workspace_list", json!({})).json();
    let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(name).collect()
}

/// Checks that the tests pass with all four parts, pushes the branch, and compares it with the repository on the host.
fn push(internet: &Internet, ws: &TestWorkspace<'_>, secret: &str, branch: &str) {
    assert_eq!(ws.sh("cd /workspace && python3 check.py"), format!("{secret} 4"), "{branch}");
    let head = ws.sh("cd /workspace && git rev-parse HEAD");
    let pushed = ws.tool("git_push", json!({})).json();
    assert_eq!((&pushed["success"], &pushed["branch"]), (&json!(true), &json!(branch)));
    assert_eq!(internet.git(REPOSITORY, &["rev-parse", branch]), head);
    let subjects = internet.git(REPOSITORY, &["log", "--format=%s", branch]);
    for expected in (1..=4).map(|number| format!("part {number} is done")) {
        assert_eq!(subjects.lines().filter(|line| **line == expected).count(), 1, "{branch}: {subjects}");
    }
}

/// Asserts that no VM, socket, file or port is left, and stops the daemon.
fn assert_clean(internet: &Internet, host: &TestHost, port: u64) {
    host.assert_no_workspaces_left();
    assert_eq!(internet.greeting_at_host("127.0.0.1", port), "refused");
    let transfers = std::fs::read_dir(host.data().join("transfers")).map_or(0, Iterator::count);
    assert_eq!(transfers, 0, "something was left in the transfer directory");
    host.stop_daemon();
    eventually("nobody listens any more", Duration::from_secs(20), || {
        internet.sh_at_host("ss -Hltn | grep -v ':8000 ' || true").is_empty()
    });
}

#[test]
fn swarm_work_is_merged_pushed_and_cleaned_up() {
    let internet = internet_or_skip!();
    internet.repository(REPOSITORY, &COMMITS);
    let host = host_or_skip!(internet.host_options(""));
    let client = host.client();
    let prepare = json!({"name": "app", "git_url": "http://git.test/app.git", "setup_commands": [
        "git -C /workspace config user.name Ann && git -C /workspace config user.email ann@example.com",
    ]});
    client.tool("workspace_prepare", prepare);
    let app = client.existing("app");
    app.tool("network_policy", json!({"allow_domains": ["git.test"]}));
    app.tool("exec_background", json!({"command": "python3 serve.py", "workdir": "/workspace"}));
    let check = || app.exec_with(json!({"command": "python3 check.py", "workdir": "/workspace"}));
    eventually("the server answers", Duration::from_secs(60), || check().exit_code == 0);
    let secret = check().stdout.split(' ').next().unwrap().to_owned();
    let port = app.tool("port_forward", json!({"action": "add", "guest_port": 8080})).json();
    let port = port["host_port"].as_u64().unwrap();
    assert_eq!(internet.greeting_at_host("127.0.0.1", port), secret);
    app.snapshot_with_memory("live");

    // Sequential merge by the swarm itself, which destroys its workers.
    let merged = swarm(&client, &secret, json!({"merge_strategy": "sequential"}));
    let detail: Value = serde_json::from_str(merged["merge"]["detail"].as_str().unwrap()).unwrap();
    assert_eq!((&detail["success"], &detail["total_commits_applied"]), (&json!(true), &json!(4)), "{detail}");
    assert_eq!(
        (&merged["summary"]["workers_destroyed"], names(&client)),
        (&json!(4), vec!["app".to_owned()])
    );
    push(&internet, &app, &secret, "main");

    // The other strategies: from workers that stay, each into a separate fork.
    let kept = swarm(&client, &secret, json!({"cleanup": false}));
    let sources: Vec<&Value> = (0..4).map(|number| &kept["tasks"][number]["workspace_id"]).collect();
    for (strategy, branch) in [("branch-per-source", "by-branch"), ("cherry-pick", "by-cherry-pick")] {
        let target = app.fork_with("live", json!({"new_name": branch}));
        target.sh(&format!("cd /workspace && git checkout -q -b {branch}"));
        let merge = json!({"source_workspaces": sources, "target_workspace": branch, "strategy": strategy});
        let merged = client.tool("workspace_merge", merge).json();
        assert_eq!(merged["total_commits_applied"], 4, "{strategy}: {merged}");
        push(&internet, &target, &secret, branch);
        target.destroy();
    }
    let tree = |branch: &str| internet.git(REPOSITORY, &["rev-parse", &format!("{branch}^{{tree}}")]);
    assert_eq!([tree("by-branch"), tree("by-cherry-pick")], [tree("main"), tree("main")]);
    let merges = |branch: &str| internet.git(REPOSITORY, &["rev-list", "--count", "--merges", branch]);
    assert_eq!([merges("main"), merges("by-branch"), merges("by-cherry-pick")], ["0", "4", "0"]);

    for source in sources {
        client.tool("workspace_destroy", json!({"workspace_id": source}));
    }
    assert_eq!(names(&client), ["app"]);
    app.destroy();
    assert_clean(&internet, &host, port);
}
