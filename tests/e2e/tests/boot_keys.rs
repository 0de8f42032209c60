//! Configuration keys about booting: `vm.kernel_append`, `vm.boot_timeout_secs`, and those that set a VM's subnet,
//! directories and QEMU binary.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentiso_testkit::{HostOptions, host_or_skip};
use serde_json::json;

/// The value of `kernel_append` in the predecessor's example configuration.
const PREDECESSORS: &str = "console=ttyS0 root=/dev/vda rw quiet";

/// The kernel finds no init and hangs instead of ending the VM, so the guest never comes up, with or without KVM.
const NEVER_UP: &str = "rdinit=/none panic=0";

fn options(append: &str, more: &str) -> HostOptions {
    // No templates: a VM restored from one was booted with other arguments.
    let config = format!("[vm]\ntemplates = false\nkernel_append = \"{append}\"\n{more}");
    HostOptions { config, ..HostOptions::default() }
}

#[test]
fn kernel_append_follows_the_built_in_arguments() {
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
fn slow_boot_fails_and_names_boot_timeout_secs() {
    let host = host_or_skip!(options(NEVER_UP, "boot_timeout_secs = 3\n"));
    let client = host.client();
    let began = Instant::now();
    let refused = client.tool_error("workspace_create", json!({"name": "slow"}));
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(3), "{took:?}");
    assert!(took < Duration::from_secs(60), "the default was waited for instead: {took:?}");
    assert_eq!(refused.structured["code"], "boot_failed", "{}", refused.structured);
    for part in ["slow", "did not start within 3 s", "vm.boot_timeout_secs"] {
        assert!(refused.text.contains(part), "{part:?} is not in {}", refused.text);
    }
    host.assert_no_workspaces_left();
}

fn qemu() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|dir| dir.join("qemu-system-x86_64")).find(|file| file.is_file());
    found.expect("QEMU is installed")
}

#[test]
fn vms_use_configured_subnet_directories_and_qemu() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let more = format!(
        "qemu_binary = \"{}\"\nrun_dir = \"{}\"\n[network]\ngateway_ip = \"10.77.3.1\"\nsubnet_prefix = 24\n",
        at("qemu").display(),
        at("run").display()
    );
    let host = host_or_skip!(options("", &more));
    std::os::unix::fs::symlink(qemu(), at("qemu")).unwrap();
    let config = std::fs::read_to_string(host.config_path()).unwrap();
    let transfers = format!("[server]\ntransfer_dir = \"{}\"\n", at("transfers").display());
    std::fs::write(host.config_path(), config.replace("[server]\n", &transfers)).unwrap();
    let client = host.client();
    let ws = client.workspace();
    assert_eq!(ws.created["ip"], "10.77.3.2");
    // Addresses are little-endian, as the kernel prints them.
    assert_eq!(ws.sh("awk '$2 == \"00000000\" {print $3}' /proc/net/route"), "01034D0A", "its gateway");
    assert_eq!(
        ws.sh("awk '$3 == \"00000000\" {print $2, $8}' /proc/net/route"),
        "00034D0A 00FFFFFF",
        "its subnet"
    );
    let vm = agentiso_testkit::processes_mentioning(&at("run"))[0];
    let line = std::fs::read(format!("/proc/{vm}/cmdline")).unwrap();
    let program = line.split(|byte| *byte == 0).next().unwrap();
    assert_eq!(String::from_utf8_lossy(program), at("qemu").display().to_string());
    assert!(std::fs::read_dir(at("run")).unwrap().count() > 0, "its sockets");
    std::fs::write(at("transfers/note"), "x").unwrap();
    ws.tool("file_upload", json!({"host_path": "note", "guest_path": "/root/note"}));
    assert_eq!(ws.read("/root/note"), "x");
    ws.destroy();
    host.assert_no_workspaces_left();
}
