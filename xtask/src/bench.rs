//! `./x bench`: builds what is measured, with optimisation, and runs the benchmark of benches/ on it.

use anyhow::{Context, Result};
use clap::Args;

use crate::shell;
use crate::test::prepare;

/// Where the image, kernel and templates of benchmark runs stay from run to run.
const CACHE: &str = "target/bench-cache";

#[derive(Args)]
pub(crate) struct Options {
    /// Arguments for the benchmark itself: ./x bench -- --help
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let packages = ["--package", "agentiso", "--package", "agentiso-bench"];
    shell::run(shell::cargo().args(["build", "--release"]).args(packages))?;
    let release = prepare::target_dir()?.join("release");
    let cache = shell::root().join(CACHE);
    std::fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    shell::run(
        shell::command(release.join("agentiso-bench"))
            .args(&options.arguments)
            .env("AGENTISO_BIN", release.join("agentiso"))
            .env("AGENTISO_TEST_CACHE", cache),
    )
}
