//! A binary of the version that was landed before this one, for the tests of upgrades.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::prepare::target_dir;
use crate::shell;

/// The last commit before the ledger had schema 5. Update it when a version lands whose files or VMs differ from it.
const COMMIT: &str = "363e18a5c24501df65419e747f54642b683245b5";

/// The features of that version which its tests used.
const FEATURES: &str = "agentiso-daemon/fault-injection";

/// Builds the older binary, once per target directory. `None`: this clone does not have the commit.
///
/// The build has its own target directory, which is removed afterwards. In a shared one cargo would mistake a crate of
/// one version for the same crate of the other: it distinguishes them only by their path in the workspace and by file
/// times. The dependencies that both versions share are copied from our target directory, so they are not built twice.
pub(super) fn build() -> Result<Option<PathBuf>> {
    let dir = target_dir()?.join("older");
    let binary = dir.join(format!("agentiso-{COMMIT}"));
    if binary.exists() {
        return Ok(Some(binary));
    }
    if !shell::succeeds(shell::command("git").args(["cat-file", "-e", &format!("{COMMIT}^{{commit}}")])) {
        return Ok(None);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    let (source, build, archive) = (dir.join("source"), dir.join("build"), dir.join("source.tar"));
    fs::create_dir_all(&source).with_context(|| format!("creating {}", source.display()))?;
    shell::run(shell::command("git").args(["archive", "--output"]).arg(&archive).arg(COMMIT))?;
    shell::run(
        shell::command("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(&source),
    )?;
    for profile in ["debug", "guest-build/guest", "guest-build/x86_64-unknown-linux-gnu/guest"] {
        copy_dependencies(&target_dir()?.join(profile), &build.join(profile))?;
    }
    let mut cargo = shell::cargo();
    cargo.args(["build", "--locked", "--package", "agentiso", "--features", FEATURES]);
    cargo.arg("--manifest-path").arg(source.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&build).env_remove("CARGO_TARGET_DIR");
    // It embeds the agent of its own version.
    cargo.env_remove("AGENTISO_GUEST_BINARY");
    shell::run(&mut cargo).context("building the older agentiso that upgrades are tested with")?;
    fs::rename(build.join("debug/agentiso"), &binary)
        .with_context(|| format!("moving it to {}", binary.display()))?;
    for leftover in [&source, &build] {
        fs::remove_dir_all(leftover).with_context(|| format!("removing {}", leftover.display()))?;
    }
    fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))?;
    Ok(Some(binary))
}

/// Copies what cargo built of other people's crates. File times are kept: cargo compares them.
fn copy_dependencies(from: &Path, to: &Path) -> Result<()> {
    for part in ["deps", ".fingerprint", "build"] {
        let (from, to) = (from.join(part), to.join(part));
        fs::create_dir_all(&to).with_context(|| format!("creating {}", to.display()))?;
        let mut find = shell::command("find");
        find.arg(&from).args(["-mindepth", "1", "-maxdepth", "1"]);
        find.args(["!", "-name", "agentiso*", "!", "-name", "libagentiso*"]);
        find.args(["-exec", "cp", "--archive", "--target-directory"]).arg(&to).args(["{}", "+"]);
        shell::run(&mut find)?;
    }
    Ok(())
}
