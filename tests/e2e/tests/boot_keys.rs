//! What the keys about booting do: `vm.kernel_append` and `vm.boot_timeout_secs`, and where others put a machine.

use std::path::PathBuf;
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

fn qemu() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|dir| dir.join("qemu-system-x86_64")).find(|file| file.is_file());
    found.expect("QEMU is installed")
}

#[test]
fn machines_have_the_subnet_the_directories_and_the_qemu_of_the_configuration() {
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
    // Little-endian, as the kernel shows them.
    assert_eq!(ws.sh("awk '$2 == \"00000000\" {print $3}' /proc/net/route"), "01034D0A", "its gateway");
    assert_eq!(
        ws.sh("awk '$3 == \"00000000\" {print $2, $8}' /proc/net/route"),
        "00034D0A 00FFFFFF",
        "its subnet"
    );
    let machine = agentiso_testkit::processes_mentioning(&at("run"))[0];
    let line = std::fs::read(format!("/proc/{machine}/cmdline")).unwrap();
    let program = line.split(|byte| *byte == 0).next().unwrap();
    assert_eq!(String::from_utf8_lossy(program), at("qemu").display().to_string());
    assert!(std::fs::read_dir(at("run")).unwrap().count() > 0, "its sockets");
    std::fs::write(at("transfers/note"), "x").unwrap();
    ws.tool("file_upload", json!({"host_path": "note", "guest_path": "/root/note"}));
    assert_eq!(ws.read("/root/note"), "x");
    ws.destroy();
    host.assert_no_workspaces_left();
}
