//! Merging the commits of forks, with every strategy.

use agentiso_testkit::{TestWorkspace, host_or_skip};
use serde_json::{Value, json};

fn commit(ws: &TestWorkspace<'_>, name: &str, content: &str) {
    ws.write(&format!("/workspace/{name}"), content);
    ws.tool("git_commit", json!({"message": format!("change {name}")}));
}

fn state(ws: &TestWorkspace<'_>) -> String {
    ws.sh("cd /workspace && git rev-parse HEAD && git symbolic-ref HEAD && git status --porcelain && git stash list && \
           git for-each-ref && cat $(git ls-files) && ls -A /tmp")
}

#[test]
fn every_strategy_merges_forks_and_skips_conflicts() {
    let host = host_or_skip!();
    let client = host.client();
    let golden = client.workspace();
    golden.sh("cd /workspace && git init -q -b main");
    for number in 1..=3 {
        commit(&golden, "base.txt", &format!("1\n2\n{number}\n"));
    }
    golden.snapshot("base");
    let forks = golden.fork_many("base", 3, "worker");
    let [one, two, clash] = &forks[..] else { panic!("three forks") };
    commit(one, "one.txt", "1\n");
    commit(one, "one.txt", "1\n2\n");
    commit(two, "two.bin", "\u{0}\u{1}");
    commit(clash, "fine.txt", "x\n");
    commit(clash, "base.txt", "1\nclash\n3\n");
    for strategy in ["sequential", "branch-per-source", "cherry-pick"] {
        golden.restore("base");
        commit(&golden, "base.txt", "1\ngolden\n3\n");
        let merge = |sources: &[&TestWorkspace<'_>]| {
            let sources: Vec<&str> = sources.iter().map(|ws| ws.id.as_str()).collect();
            let arguments = json!({"source_workspaces": sources, "target_workspace": golden.id, "strategy": strategy,
                "commit_message": "bring home"});
            client.tool("workspace_merge", arguments).json()
        };
        let before = state(&golden);
        let failed = merge(&[clash]);
        assert_eq!((&failed["success"], &failed["total_commits_applied"]), (&json!(false), &json!(0)));
        assert!(failed["conflicts"][0]["error"].as_str().unwrap().contains("base.txt"), "{failed}");
        assert_eq!(state(&golden), before, "{strategy}");
        let merged = merge(&[one, clash, two]);
        assert_eq!(merged["total_commits_applied"], 3, "{strategy}: {merged}");
        assert_eq!(merged["merged_sources"], json!([one.id, two.id]));
        let applied: Vec<&Value> = (0..3).map(|n| &merged["results"][n]["commits_applied"]).collect();
        assert_eq!(applied, [&json!(2), &json!(0), &json!(1)]);
        let merges = match strategy {
            "branch-per-source" => "bring home (workspace worker-2)\nbring home (workspace worker-1)",
            _ => "",
        };
        assert_eq!(golden.sh("cd /workspace && git log --merges --format=%s"), merges, "{strategy}");
        assert_eq!(golden.sh("cd /workspace && git branch --format='%(refname:short)'"), "main");
        assert_eq!(golden.read("/workspace/one.txt"), "1\n2\n");
        assert_eq!(golden.sh("wc -c < /workspace/two.bin"), "2");
        assert_eq!(golden.tool("git_status", json!({})).json()["dirty"], false);
        assert_eq!(golden.sh("ls -d /workspace/fine.txt /tmp/.agentiso* 2>/dev/null | wc -l"), "0");
    }
    golden.write("/workspace/base.txt", "dirty\n");
    let arguments =
        json!({"source_workspaces": [one.id], "target_workspace": golden.id, "strategy": "sequential"});
    assert_eq!(client.tool_error("workspace_merge", arguments).code(), "uncommitted_changes");

    // Another working tree in the same workspaces is another repository.
    for ws in [&golden, one] {
        ws.sh("git clone -q /workspace /srv/app");
    }
    one.sh("cd /srv/app && echo x > app.txt && git add app.txt && git -c user.name=A -c user.email=a@b commit -q -m app");
    let elsewhere = json!({"source_workspaces": [one.id], "target_workspace": golden.id, "strategy": "sequential",
        "path": "/srv/app"});
    let merged = client.tool("workspace_merge", elsewhere).json();
    assert_eq!(merged["success"], true, "{merged}");
    assert_eq!(golden.sh("cat /srv/app/app.txt; ls /workspace/app.txt 2>/dev/null | wc -l"), "x\n0");
}
