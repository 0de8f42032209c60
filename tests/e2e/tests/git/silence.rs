//! Git against a server that accepts connections and never answers.

use std::time::{Duration, Instant};

use agentiso_e2e::internet::{DRAFTS, KEEPING_PORT};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{TestWorkspace, eventually, host_or_skip};
use serde_json::json;

/// The git processes of the guest, without the one that lists them.
fn git_processes(ws: &TestWorkspace<'_>) -> String {
    ws.sh("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done \
           | grep -E '(^|/)git[ -]' || true")
}

#[test]
fn unanswered_push_times_out_and_leaves_nothing() {
    let internet = internet_or_skip!();
    internet.repository("one.git", &DRAFTS);
    let test = host_or_skip!(internet.host_options(""));
    let client = test.client();
    let ws = client.workspace_with(json!({"network_policy": {"allow_domains": ["git.test"]}}));
    ws.tool("git_clone", json!({"url": "http://git.test/one.git"}));
    ws.write("/workspace/news", "x\n");
    ws.tool("git_commit", json!({"message": "news"}));
    for scheme in ["git", "http"] {
        let silent = format!("{scheme}://git.test:{KEEPING_PORT}/one.git");
        ws.sh(&format!("git -C /workspace remote set-url origin {silent}"));
        let begun = Instant::now();
        let late = ws.tool_error("git_push", json!({"timeout_secs": 3}));
        let took = begun.elapsed();
        assert_eq!(late.code(), "timed_out", "{}", late.text);
        late.mentions(&["git push", "timed out", "3 s"]);
        // A second or two for a busy host.
        assert!((3..20).contains(&took.as_secs()), "{scheme}: it took {took:?}");
        assert_eq!(git_processes(&ws), "", "{scheme}: something runs on");
        assert_eq!(ws.sh("find /workspace/.git -name '*.lock'"), "", "{scheme}: it can be used again");

        // A clone has a longer timeout, but can be cancelled.
        let clone = ws.with_id(json!({"url": silent, "path": "/root/never"}));
        let pending = client.start_tool("git_clone", clone);
        eventually("the clone is under way", Duration::from_secs(60), || {
            git_processes(&ws).contains("clone")
        });
        client.cancel(&pending);
        eventually("nothing of it is left", Duration::from_secs(30), || {
            git_processes(&ws).is_empty() && ws.exec("test -e /root/never").exit_code == 1
        });
    }
    // The repository still works.
    ws.sh("git -C /workspace remote set-url origin http://git.test/one.git");
    ws.tool("git_push", json!({"timeout_secs": 60}));
    assert_eq!(internet.git("one.git", &["log", "-1", "--format=%s", "main"]), "news");
}
