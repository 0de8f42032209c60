//! `init_mode = "system"`: the image's own init is process 1, and the agent runs beside it.

use std::time::Duration;

use agentiso_testkit::{HostOptions, eventually, host_or_skip};
use serde_json::json;

#[test]
fn image_init_runs_beside_the_agent() {
    let host = host_or_skip!(HostOptions {
        base_image: "debian-system".to_owned(),
        config: "[vm]\ninit_mode = \"system\"\n".to_owned(),
        ..HostOptions::default()
    });
    let client = host.client();
    let ws = client.workspace_with(json!({"name": "with-systemd"}));
    assert_eq!(ws.sh("readlink /proc/1/exe"), "/usr/lib/systemd/systemd");
    // A guest without a network may end up "degraded"; what matters is that the boot ends.
    eventually("the image's own boot ends", Duration::from_secs(300), || {
        ["running\n", "degraded\n"].contains(&ws.exec("systemctl is-system-running").stdout.as_str())
    });
    ws.write(
        "/etc/systemd/system/note.service",
        "[Service]\nType=oneshot\nExecStart=/bin/touch /root/from-a-unit\n",
    );
    ws.sh("systemctl daemon-reload && systemctl start note && test -e /root/from-a-unit");
    assert_eq!(ws.sh("hostname"), "with-systemd");
    ws.sh("echo kept > /root/note");
    ws.stop();
    ws.start();
    assert_eq!(ws.sh("cat /root/note; readlink /proc/1/exe"), "kept\n/usr/lib/systemd/systemd");
}

#[test]
fn missing_init_is_reported() {
    let host = host_or_skip!(HostOptions {
        config: "[vm]\ninit_mode = \"openrc\"\n".to_owned(),
        ..HostOptions::default()
    });
    let check = host.cli(&["check"]);
    let said = String::from_utf8_lossy(&check.stdout);
    assert_eq!(check.status.code(), Some(1), "{said}");
    assert!(said.contains("FAIL init") && said.contains("vm.init_mode"), "{said}");
    let client = host.client();
    let refused = client.tool_error("workspace_create", json!({}));
    refused.mentions(&["debian-minimal", "/sbin/init", "vm.init_mode"]);
    assert!(!format!("{refused:?}").contains("RIP"), "{refused:?}");
    host.assert_no_workspaces_left();
}
