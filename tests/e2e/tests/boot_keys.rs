//! What the keys about booting do: `vm.kernel_append` and `vm.boot_timeout_secs`.

use std::time::{Duration, Instant};

use agentiso_testkit::{HostOptions, host_or_skip};
use serde_json::json;

/// What the predecessor's example configuration has there.
const PREDECESSORS: &str = "console=ttyS0 root=/dev/vda rw quiet";

/// A kernel that finds no init, and stands still instead of ending the machine: never up, with or without KVM.
const NEVER_UP: &str = "rdinit=/none panic=0";

fn options(append: &str, more: &str) -> HostOptions {
    // What is remembered in a template was booted by somebody else.
    let config = format!("[vm]\ntemplates = false\nkernel_append = \"{append}\"\n{more}");
    HostOptions { config, ..HostOptions::default() }
}

#[test]
fn what_is_appended_comes_after_our_own_words_and_a_file_of_the_predecessors_boots() {
    let host = host_or_skip!(options(&format!("{PREDECESSORS} mark=7"), ""));
    let client = host.client();
    let ws = client.workspace();
    let words = ws.sh("cat /proc/cmdline");
    assert!(words.ends_with(&format!("{PREDECESSORS} mark=7")), "{words}");
    assert!(words.contains("panic=-1"), "our own words stay: {words}");
    ws.destroy();
    host.assert_no_workspaces_left();
}

#[test]
fn a_boot_that_takes_longer_than_it_may_fails_with_the_key_and_leaves_nothing() {
    let host = host_or_skip!(options(NEVER_UP, "boot_timeout_secs = 3\n"));
    let client = host.client();
    let began = Instant::now();
    let refused = client.tool_error("workspace_create", json!({"name": "slow"}));
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(3), "{took:?}");
    assert!(took < Duration::from_secs(60), "the default was waited for instead: {took:?}");
    assert_eq!(refused.structured["code"], "boot_failed", "{}", refused.structured);
    for part in ["slow", "not up after 3 s", "vm.boot_timeout_secs"] {
        assert!(refused.text.contains(part), "{part:?} is not in {}", refused.text);
    }
    host.assert_no_workspaces_left();
}
