//! `init_mode = "system"`: the image's own init is process 1, and the agent runs beside it.

use agentiso_testkit::{HostOptions, host_or_skip};
use serde_json::json;

#[test]
fn the_images_own_init_runs_with_the_agent_beside_it() {
    let host = host_or_skip!(HostOptions {
        base_image: "debian-system".to_owned(),
        config: "[vm]\ninit_mode = \"system\"\n".to_owned(),
        ..HostOptions::default()
    });
    let client = host.client();
    let ws = client.workspace_with(json!({"name": "with-systemd"}));
    assert_eq!(ws.sh("cat /proc/1/comm"), "systemd");
    // Offline machines may end up "degraded"; what matters is that the boot ends and units can be started.
    let settled = ws.exec_with(json!({"command": "systemctl is-system-running --wait", "timeout_secs": 300}));
    assert!(["running\n", "degraded\n"].contains(&settled.stdout.as_str()), "{settled:?}");
    assert_eq!(ws.sh("systemd-run --quiet --wait --pipe echo from a unit"), "from a unit");
    assert_eq!(ws.sh("hostname"), "with-systemd");
    ws.sh("echo kept > /root/note");
    ws.stop();
    ws.start();
    assert_eq!(ws.sh("cat /root/note; cat /proc/1/comm"), "kept\nsystemd");
}

#[test]
fn an_image_without_an_init_says_so() {
    let host = host_or_skip!(HostOptions {
        config: "[vm]\ninit_mode = \"system\"\n".to_owned(),
        ..HostOptions::default()
    });
    let client = host.client();
    client.tool_error("workspace_create", json!({})).mentions(&["init"]);
    host.assert_no_workspaces_left();
}
