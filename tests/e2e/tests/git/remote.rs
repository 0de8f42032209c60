//! Clone, change, commit and push, and their error messages.

use agentiso_e2e::internet::DRAFTS;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::host_or_skip;
use serde_json::json;

#[test]
fn repository_is_cloned_changed_and_pushed() {
    let internet = internet_or_skip!();
    internet.repository("one.git", &DRAFTS);
    internet.repository("private/two.git", &DRAFTS);
    let test = host_or_skip!(internet.host_options(""));
    let client = test.client();
    let ws = client.workspace();

    // Nothing is reachable until it is allowed, and the answer says how.
    let url = "http://git.test/one.git";
    let refused = ws.tool_error("git_clone", json!({"url": url}));
    refused.mentions(&["git.test", "network_policy"]);
    assert_eq!(refused.code(), "network_refused", "{}", refused.text);
    ws.tool("network_policy", json!({"allow_domains": ["git.test"]}));
    assert_eq!(ws.tool("git_status", json!({})).json()["error"], "not_a_git_repository");

    let cloned = ws.tool("git_clone", json!({"url": url})).json();
    assert_eq!((&cloned["success"], &cloned["path"]), (&json!(true), &json!("/workspace")));
    assert_eq!(cloned["commit_sha"], internet.git("one.git", &["rev-parse", "main"]));
    assert_eq!((&cloned["branch"], &cloned["depth"]), (&json!("main"), &json!(null)));
    assert_eq!(ws.read("/workspace/README"), "hello from the repository\n");
    let status = ws.tool("git_status", json!({})).json();
    assert_eq!((&status["branch"], &status["dirty"]), (&json!("main"), &json!(false)));
    assert_eq!(ws.tool_error("git_clone", json!({"url": url})).code(), "not_empty");

    // `git diff` ignores new files and shows changed ones.
    ws.write("/workspace/it's new.txt", "x\n");
    assert_eq!(ws.tool("git_diff", json!({})).json(), json!({"diff": "", "truncated": false}));
    ws.write("/workspace/README", "token ghp_0123456789abcdef\n");
    let diff = ws.tool("git_diff", json!({"max_bytes": 4000})).json();
    let shown = diff["diff"].as_str().unwrap();
    assert!(shown.contains("+token ***") && !shown.contains("0123456789"), "{shown}");
    assert!(
        ws.tool("git_diff", json!({"max_bytes": 20})).json()["diff"]
            .as_str()
            .unwrap()
            .ends_with("[TRUNCATED]")
    );
    let stat = ws.tool("git_diff", json!({"stat": true})).json();
    assert!(
        stat["stat"].as_str().unwrap().contains("1 file changed") && stat["stat"] == stat["diff"],
        "{stat}"
    );
    let status = ws.tool("git_status", json!({})).json();
    assert_eq!((&status["modified"], &status["untracked"]), (&json!(["README"]), &json!(["it's new.txt"])));

    // Staged files have a diff and a commit of their own. An author without an email is ignored.
    ws.sh("git -C /workspace add README");
    assert_eq!(ws.tool("git_diff", json!({})).json()["diff"], "");
    for (file, is_shown) in [("README", true), ("it's new.txt", false)] {
        let staged = ws.tool("git_diff", json!({"staged": true, "file_path": file})).json();
        assert_eq!(staged["diff"].as_str().unwrap().contains("+token ***"), is_shown, "{staged}");
    }
    ws.tool("git_commit", json!({"message": "staged", "add_all": false, "author_name": "Bo"}));
    assert_eq!(ws.sh("git -C /workspace log -1 --format='%s by %an'"), "staged by agentiso");
    let status = ws.tool("git_status", json!({})).json();
    assert_eq!((&status["ahead"], &status["untracked"]), (&json!(1), &json!(["it's new.txt"])), "{status}");
    ws.sh("seq 1 20000 > /workspace/README");
    let long = ws.tool("git_diff", json!({})).json();
    let shown = long["diff"].as_str().unwrap();
    assert_eq!((&long["truncated"], shown.len()), (&json!(true), 40_000 + "\n[TRUNCATED]".len()));
    ws.sh("git -C /workspace checkout -q README");

    let message = "it's $(reboot) `x`";
    let commit = json!({"message": message, "author_name": "Bo", "author_email": "bo@example.com"});
    let made = ws.tool("git_commit", commit).json();
    assert_eq!(made["short_sha"].as_str().unwrap(), &made["commit_sha"].as_str().unwrap()[..7]);
    assert_eq!(ws.tool("git_status", json!({})).json()["ahead"], 2);
    assert_eq!(ws.tool("git_commit", json!({"message": "again"})).json()["status"], "nothing_to_commit");

    let pushed = ws.tool("git_push", json!({})).json();
    assert_eq!(
        (&pushed["success"], &pushed["branch"], &pushed["remote"]),
        (&json!(true), &json!("main"), &json!("origin"))
    );
    assert!(pushed["output"].as_str().unwrap().contains("main -> main"), "{pushed}");
    assert_eq!(internet.git("one.git", &["rev-parse", "main"]), made["commit_sha"]);
    let log = internet.git("one.git", &["log", "-1", "--format=%s by %an, %ae; %cn", "main"]);
    assert_eq!(log, format!("{message} by Bo, bo@example.com; Bo"));

    // A history that differs from the remote's.
    ws.sh("cd /workspace && git reset -q --hard HEAD~1");
    ws.write("/workspace/other.txt", "y\n");
    ws.tool("git_commit", json!({"message": "other"}));
    assert_eq!(ws.tool_error("git_push", json!({})).code(), "git_non_fast_forward");
    ws.tool("git_push", json!({"force": true, "set_upstream": true}));
    ws.tool_error("git_push", json!({"remote": "nosuch"})).mentions(&["remote add"]);

    // A branch that is not checked out can be pushed, and gets an upstream only on request.
    ws.sh("git -C /workspace branch side HEAD~1");
    let upstream = "git -C /workspace rev-parse --symbolic-full-name side@{upstream}";
    assert_eq!(ws.tool("git_push", json!({"branch": "side"})).json()["branch"], "side");
    assert_ne!(ws.exec(upstream).exit_code, 0, "it follows nothing");
    ws.tool("git_push", json!({"branch": "side", "set_upstream": true}));
    assert_eq!(ws.sh(upstream), "refs/remotes/origin/side");
    let side = ws.tool("git_clone", json!({"url": url, "path": "/root/side", "branch": "side"})).json();
    assert_eq!(
        (&side["branch"], &side["url"], &side["path"]),
        (&json!("side"), &json!(url), &json!("/root/side"))
    );
    assert_eq!(side["commit_sha"], ws.sh("git -C /workspace rev-parse side"));
    assert_eq!(ws.sh("git -C /root/side symbolic-ref --short HEAD"), "side");

    // Git never prompts for credentials, and they are never shown.
    let private =
        ws.tool_error("git_clone", json!({"url": "http://git.test/private/two.git", "path": "/root/two"}));
    assert_eq!(private.code(), "git_authentication", "{}", private.text);
    let wrong = json!({"url": "http://ann:wrong-secret@git.test/private/two.git", "path": "/root/two"});
    let wrong = ws.tool_error("git_clone", wrong);
    assert!(!wrong.text.contains("wrong-secret") && !wrong.structured.to_string().contains("wrong-secret"));
    let right =
        json!({"url": "http://ann:hunter22@git.test/private/two.git", "path": "/root/deep/two", "depth": 1});
    let right = ws.tool("git_clone", right);
    assert!(!right.text.contains("hunter22"), "{}", right.text);
    assert_eq!(right.json()["url"], "http://***@git.test/private/two.git");
    assert_eq!(ws.sh("git -C /root/deep/two rev-list --count HEAD"), "1");
    assert_eq!(ws.sh("ls -A /root/two 2>/dev/null | wc -l"), "0", "nothing is left of a clone that failed");

    // An existing workspace can be prepared too; files in the way are removed.
    ws.write("/workspace/stray", "x\n");
    ws.tool("network_policy", json!({"allow_internet": false, "allow_domains": []}));
    let prepare = json!({"name": ws.name, "git_url": url, "setup_commands": ["test ! -e /workspace/stray"]});
    let ready = client.tool("workspace_prepare", prepare).json();
    assert_eq!((&ready["workspace_id"], &ready["snapshot_name"]), (&json!(ws.id), &json!("golden")));
    assert_eq!(ws.sh("cd /workspace && git status --porcelain && git rev-list --count HEAD"), "5");
    assert_eq!(ws.info()["network"]["allow_internet"], false, "as before");
    assert_ne!(
        ws.exec(&format!("git ls-remote {url}")).exit_code,
        0,
        "the internet was open for the call alone"
    );
}
