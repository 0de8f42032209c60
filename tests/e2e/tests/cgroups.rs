//! `resources.cgroup_required`: every VM has a cgroup of its own, or is not started.

use agentiso_testkit::{TestHost, host_or_skip};
use serde_json::{Value, json};

/// `HostOptions` cannot add keys to `[resources]`, so this edits the file.
fn require_cgroups(host: &TestHost) {
    let text = std::fs::read_to_string(host.config_path()).unwrap();
    let required = text.replace("[resources]\n", "[resources]\ncgroup_required = true\n");
    std::fs::write(host.config_path(), required).unwrap();
}

fn checked(host: &TestHost) -> (bool, Value) {
    let output = host.cli(&["check", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = found["checks"].as_array().unwrap();
    (output.status.success(), checks.iter().find(|check| check["name"] == "cgroups").unwrap().clone())
}

#[test]
fn required_cgroup_exists_or_vm_is_refused() {
    let host = host_or_skip!();
    let (_, optional) = checked(&host);
    require_cgroups(&host);
    let (fit, required) = checked(&host);
    let client = host.client();
    let created = client.try_tool("workspace_create", json!({"name": "box"}));
    if optional["verdict"] == "ok" {
        assert_eq!((fit, &required["verdict"]), (true, &json!("ok")), "{required}");
        assert!(!created.is_error, "{}", created.text);
        let vm = std::fs::read_to_string(format!("/proc/{}/cgroup", host.vms()[0])).unwrap();
        assert!(vm.contains("/agentiso-machine-"), "{vm}");
        return;
    }
    assert_eq!(optional["verdict"], "note", "without the key it is only worth knowing: {optional}");
    assert_eq!((fit, &required["verdict"]), (false, &json!("failed")), "{required}");
    for text in [required["detail"].as_str().unwrap(), &created.text] {
        assert!(text.contains("resources.cgroup_required is true"), "{text}");
    }
    for text in [required["fix"].as_str().unwrap(), &created.text] {
        assert!(text.contains("cgroup") && text.contains("set the key to false"), "{text}");
    }
    assert!(created.is_error);
    assert_eq!(created.structured["code"], "host_unfit", "{}", created.structured);
    host.assert_no_workspaces_left();
}
