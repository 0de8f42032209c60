//! Preparation of the tests: the binary, and the images and templates that they share.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{shell, tools};

/// The cache of images, kernels and templates that is kept between test runs.
const CACHE: &str = "target/test-cache";

/// Crash tests kill the daemon at named steps. Every build has the same features, so that each crate is built once.
pub(crate) const FEATURES: &str = "agentiso-daemon/fault-injection";

#[derive(Debug)]
pub(crate) struct Prepared {
    binary: PathBuf,
    /// `None`: VMs cannot be started here, and tests that need them are skipped.
    cache: Option<PathBuf>,
    /// `None`: there is no older binary, and tests that need it are skipped.
    pub(super) older: Option<PathBuf>,
}

impl Prepared {
    pub(crate) fn can_boot(&self) -> bool {
        self.cache.is_some()
    }

    /// Sets the environment variables that tell a test runner the paths.
    pub(crate) fn environment(&self, command: &mut Command, skip_log: &Path) {
        command.env("AGENTISO_BIN", &self.binary).env("AGENTISO_SKIP_LOG", skip_log);
        match &self.cache {
            Some(cache) => command.env("AGENTISO_TEST_CACHE", cache),
            None => command.env_remove("AGENTISO_TEST_CACHE"),
        };
        match &self.older {
            Some(older) => command.env("AGENTISO_OLDER_BIN", older),
            None => command.env_remove("AGENTISO_OLDER_BIN"),
        };
    }
}

pub(crate) fn prepare() -> Result<Prepared> {
    tools::ensure("nextest")?;
    // The examples are servers for the tests of clients.
    let packages = ["build", "--package", "agentiso", "--package", "agentiso-mcp", "--bins", "--examples"];
    shell::run(shell::cargo().args(packages).args(["--features", FEATURES]))?;
    let binary = target_dir()?.join("debug/agentiso");
    let cache = if can_boot() { Some(fill_cache(&binary)?) } else { None };
    Ok(Prepared { binary, cache, older: None })
}

/// Whether QEMU is installed. agentiso itself checks its version and whether it boots.
fn can_boot() -> bool {
    shell::succeeds(shell::command("qemu-system-x86_64").arg("--version"))
}

pub(crate) fn cache_dir() -> PathBuf {
    shell::root().join(CACHE)
}

/// Makes the image, kernel, initramfs and templates that the end-to-end tests start from.
fn fill_cache(binary: &Path) -> Result<PathBuf> {
    let cache = cache_dir();
    let dir = cache.join("server");
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let config = dir.join("config.toml");
    std::fs::write(&config, config_text(&cache, &dir))
        .with_context(|| format!("writing {}", config.display()))?;
    shell::run(shell::command(binary).args(["init", "--yes", "--config"]).arg(&config))?;
    // For the tests of `init_mode = "system"`.
    shell::run(shell::command(binary).args(["image", "build", "debian-system", "--config"]).arg(&config))?;
    Ok(cache)
}

/// The sizes are the test kit's defaults: a template fits VMs of its own size only.
fn config_text(cache: &Path, dir: &Path) -> String {
    format!(
        "[server]\nstate_file = \"{}/state.json\"\n\
         [storage]\nbase_image = \"debian-minimal\"\ncache_dir = \"{}\"\n\
         [resources]\ndefault_vcpus = 1\ndefault_memory_mb = 256\ndefault_disk_gb = 2\n",
        dir.display(),
        cache.display(),
    )
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let mut command = shell::cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps"]);
    let metadata: serde_json::Value =
        serde_json::from_str(&shell::read(&mut command)?).context("reading the output of cargo metadata")?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("cargo metadata names no target directory")
}
