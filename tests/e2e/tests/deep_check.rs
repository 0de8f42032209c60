//! `agentiso check --deep` with the real binary: every rung of the boot ladder, and proof that VMs share no identity.

use std::process::Output;
use std::time::Duration;

use agentiso_testkit::{HostOptions, TestHost, eventually, host_or_skip, processes_mentioning};
use serde_json::Value;

const RUNGS: [&str; 15] = [
    "boot files",
    "accelerator",
    "cold boot",
    "make bare template",
    "bare template",
    "make image template",
    "image template",
    "warm pool",
    "disk snapshot",
    "disk restore",
    "memory snapshot",
    "memory restore",
    "two memory forks",
    "disk fork",
    "fork of a fork",
];

fn report(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

/// Asserts that the check left no VM, directory or socket, and started no daemon.
fn assert_nothing_left(host: &TestHost) {
    eventually("its VMs are gone", Duration::from_secs(30), || processes_mentioning(host.dir()).is_empty());
    for dir in [host.data(), host.data().join("run")] {
        let names = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("deep-")).collect();
        assert!(left.is_empty(), "left in {}: {left:?}", dir.display());
    }
    assert!(host.daemon().is_none(), "a daemon was started");
}

#[test]
fn every_rung_passes_and_nothing_is_left() {
    let host = host_or_skip!();
    let output = host.cli(&["check", "--deep", "--json"]);
    let report = report(&output);
    let rungs = report["rungs"].as_array().unwrap();
    let names: Vec<_> = rungs.iter().map(|rung| rung["name"].as_str().unwrap()).collect();
    assert_eq!(names, RUNGS);
    for rung in rungs {
        assert_eq!(rung["verdict"], "passed", "{rung:#}");
        for check in rung["checks"].as_array().unwrap() {
            assert_ne!(check["verdict"], "failed", "{check:#}");
            assert!(check["verdict"] == "passed" || check["name"] == "python entropy", "{check:#}");
        }
    }
    let forks = rungs.iter().find(|rung| rung["name"] == "two memory forks").unwrap();
    assert_eq!(forks["checks"].as_array().unwrap().len(), 10, "the whole suite applies to forks");
    assert_eq!(report["ok"], true);
    assert_eq!(output.status.code(), Some(0));
    assert_nothing_left(&host);
}

#[test]
fn missing_kernel_fails_the_deep_check() {
    let host = host_or_skip!(HostOptions {
        config: "[vm]\nkernel_path = \"/nonexistent/vmlinuz\"\n".to_owned(),
        ..HostOptions::default()
    });
    let output = host.cli(&["check", "--deep", "--json"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report["ok"], false);
    let rungs = report["rungs"].as_array().unwrap();
    assert_eq!((rungs.len(), &rungs[0]["verdict"]), (RUNGS.len(), &Value::from("failed")));
    assert!(rungs[0]["reason"].as_str().unwrap().contains("/nonexistent/vmlinuz"), "{:#}", rungs[0]);
    assert!(rungs[1..].iter().all(|rung| rung["verdict"] == "skipped"), "{report:#}");
    assert_nothing_left(&host);
}

#[test]
fn failing_rung_reports_reason_and_others_run() {
    // The kernel does not find its init and panics.
    let host = host_or_skip!(HostOptions {
        config: "[vm]\nkernel_append = \"rdinit=/nonexistent\"\nboot_timeout_secs = 60\n".to_owned(),
        ..HostOptions::default()
    });
    let output = host.cli(&["check", "--deep"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    let row = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("accelerator").contains("ok"), "{shown}");
    assert!(row("cold boot").contains("FAIL"), "{shown}");
    assert!(row("make bare template").contains("FAIL"), "the next rung was tried: {shown}");
    assert!(row("fork of a fork").contains("not tried"), "{shown}");
    assert!(shown.contains("panic"), "the reason is told: {shown}");
    assert!(shown.lines().last().is_some_and(|line| line.contains("rungs failed")), "{shown}");
    assert_nothing_left(&host);
}
