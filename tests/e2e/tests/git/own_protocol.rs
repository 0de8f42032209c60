//! `git://`: it has neither HTTP requests nor a TLS handshake that name a host, so name and port alone decide what may
//! be reached.

use agentiso_e2e::internet::DRAFTS;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::host_or_skip;
use serde_json::json;

#[test]
fn git_protocol_clones_pushes_and_fetches() {
    let internet = internet_or_skip!();
    internet.repository("one.git", &DRAFTS);
    let test = host_or_skip!(internet.host_options(""));
    let client = test.client();
    let [ann, bob] = ["ann", "bob"].map(|name| {
        client.workspace_with(json!({"name": name, "network_policy": {"allow_domains": ["git.test:80"]}}))
    });
    let url = "git://git.test/one.git";
    let refused = ann.tool_error("git_clone", json!({"url": url}));
    assert_eq!(refused.code(), "network_refused", "the name is allowed, the port is not: {}", refused.text);
    refused.mentions(&["9418", "network_policy"]);
    assert!(internet.asked_for("git ").is_empty(), "{:?}", internet.asked());
    for ws in [&ann, &bob] {
        ws.tool("network_policy", json!({"allow_domains": ["git.test:9418"]}));
        let cloned = ws.tool("git_clone", json!({"url": url})).json();
        assert_eq!(cloned["commit_sha"], internet.git("one.git", &["rev-parse", "main"]), "{cloned}");
        assert_eq!(ws.read("/workspace/README"), "hello from the repository\n");
        assert_eq!(ws.sh("git -C /workspace rev-list --count HEAD"), DRAFTS.len().to_string());
    }
    let shallow = ann.tool("git_clone", json!({"url": url, "path": "/root/shallow", "depth": 1})).json();
    assert_eq!((&shallow["branch"], &shallow["depth"]), (&json!("main"), &json!(1)), "{shallow}");
    assert_eq!(ann.sh("git -C /root/shallow rev-list --count HEAD"), "1");

    // One workspace pushes and the other fetches.
    ann.write("/workspace/news", "from ann\n");
    let made = ann.tool("git_commit", json!({"message": "news"})).json();
    let pushed = ann.tool("git_push", json!({})).json();
    assert_eq!((&pushed["success"], &pushed["branch"]), (&json!(true), &json!("main")), "{pushed}");
    assert_eq!(internet.git("one.git", &["rev-parse", "main"]), made["commit_sha"]);
    bob.sh("git -C /workspace fetch -q");
    let status = bob.tool("git_status", json!({})).json();
    assert_eq!((&status["ahead"], &status["behind"]), (&json!(0), &json!(1)), "{status}");
    bob.sh("git -C /workspace merge -q --ff-only");
    assert_eq!(bob.read("/workspace/news"), "from ann\n");

    // The server refuses a push that is not a fast-forward.
    bob.sh("git -C /workspace reset -q --hard HEAD~1");
    bob.write("/workspace/other", "from bob\n");
    bob.tool("git_commit", json!({"message": "other"}));
    assert_eq!(bob.tool_error("git_push", json!({})).code(), "git_non_fast_forward");
    assert_eq!(internet.git("one.git", &["rev-parse", "main"]), made["commit_sha"]);

    // Neither another name of the server nor another port is open.
    let before = internet.asked_for("git ").len();
    for host in ["bad.test", "git.test:81"] {
        let other = json!({"url": format!("git://{host}/one.git"), "path": "/root/other"});
        let refused = ann.tool_error("git_clone", other);
        assert_eq!(refused.code(), "network_refused", "{host}: {}", refused.text);
    }
    assert_eq!(internet.asked_for("git ").len(), before, "{:?}", internet.asked());
}
