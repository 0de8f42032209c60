//! `./x up`: from a clone to a working installation.
//!
//! Every step uses an agentiso command that can be repeated: existing parts are kept, and parts of an interrupted run
//! are finished or made again. So this chore keeps no state of its own.

mod clients;
mod sizes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;
use crate::steps::{Steps, table};
use crate::test::prepare::target_dir;

/// The first workspace. A fixed name, so that a run after an interrupted one finds and removes it.
const PROOF: &str = "x-up-proof";

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    let binary = steps.step("build agentiso", build)?;
    init(&binary, &mut steps)?;
    let check = steps.step("check the host", || check(&binary))?;
    steps.step("create a workspace", || {
        remove_proof_of_an_earlier_run(&binary)?;
        shell::run(shell::command(&binary).args(["create", PROOF]))
    })?;
    let said = steps.step("run a command in it", || {
        shell::read(shell::command(&binary).args(["exec", PROOF, "--", "uname", "-srm"]))
    });
    // The workspace is destroyed whether the command succeeded or not.
    steps.step("destroy it", || shell::run(shell::command(&binary).args(["rm", PROOF])))?;
    let said = said?;

    println!();
    println!("{}", table("agentiso is up.", &picked(&check, said.trim())));
    println!("{}", table("Time taken", &steps.rows()));
    println!("{}", table("Space used", &sizes::rows(&check, &binary)));
    println!("{}", clients::text(&binary));
    Ok(())
}

fn build() -> Result<PathBuf> {
    shell::run(shell::cargo().args(["build", "--release", "--package", "agentiso"]))?;
    Ok(target_dir()?.join("release/agentiso"))
}

/// Makes the kernel, initramfs, base image and templates; agentiso reports how long each took.
fn init(binary: &Path, steps: &mut Steps) -> Result<()> {
    eprintln!("==> kernel, initramfs, base image, templates");
    retire_daemon_of_another_build(binary)?;
    let done = json(binary, &["init", "--yes", "--json"])?;
    for step in done.as_array().into_iter().flatten() {
        let name = step["name"].as_str().unwrap_or_default();
        steps.record(name, Duration::from_secs_f64(step["seconds"].as_f64().unwrap_or_default()));
    }
    Ok(())
}

fn json(binary: &Path, arguments: &[&str]) -> Result<Value> {
    let text = shell::read(shell::command(binary).args(arguments))?;
    serde_json::from_str(&text)
        .with_context(|| format!("`agentiso {}` did not print JSON", arguments.join(" ")))
}

/// A daemon that was started by an earlier build keeps running. It is replaced if no workspace depends on it: ending a
/// daemon stops its VMs.
fn retire_daemon_of_another_build(binary: &Path) -> Result<()> {
    let status = json(binary, &["daemon", "status", "--json"])?;
    let Some(pid) = status["pid"].as_i64() else { return Ok(()) };
    // The link of a replaced file ends in " (deleted)", so it equals no path that exists.
    let runs = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    if runs.as_deref() == Some(binary) {
        return Ok(());
    }
    let running = json(binary, &["ps", "--json"])?;
    let busy = running.as_array().is_some_and(|all| all.iter().any(|ws| ws["state"] == "running"));
    if busy {
        eprintln!(
            "The running daemon (pid {pid}) is another build, and workspaces are running in it. It was left alone; \
             `agentiso daemon stop` stops both, and the next command starts this build."
        );
        return Ok(());
    }
    shell::run(shell::command(binary).args(["daemon", "stop"]))
}

fn check(binary: &Path) -> Result<Value> {
    let output = shell::command(binary)
        .args(["check", "--json"])
        .output()
        .context("`agentiso check` could not be started")?;
    let value: Value =
        serde_json::from_slice(&output.stdout).context("`agentiso check --json` did not print JSON")?;
    if !output.status.success() {
        // The same again as text for the user.
        let _ = shell::run(shell::command(binary).arg("check"));
        bail!("this host is not ready; see the failed checks above");
    }
    Ok(value)
}

fn remove_proof_of_an_earlier_run(binary: &Path) -> Result<()> {
    let all = json(binary, &["ps", "--json"])?;
    if all.as_array().is_some_and(|all| all.iter().any(|ws| ws["name"] == PROOF)) {
        shell::run(shell::command(binary).args(["rm", PROOF]))?;
    }
    Ok(())
}

/// The choices on this host and their reasons, from `agentiso check`.
fn picked(check: &Value, kernel: &str) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = ["accelerator", "storage", "transport", "network"]
        .iter()
        .map(|key| {
            let picked = &check["picked"][key];
            let value = picked["value"].as_str().unwrap_or("unknown");
            let why = picked["why"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
            ((*key).to_owned(), format!("{value}{why}"))
        })
        .collect();
    rows.push(("guest".to_owned(), kernel.to_owned()));
    rows
}
