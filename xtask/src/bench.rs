//! `./x bench`: builds what is measured, with optimisation, and runs the benchmark of benches/ on it.

use anyhow::Result;
use clap::Args;

use crate::shell;
use crate::test::prepare;

#[derive(Args)]
pub(crate) struct Options {
    /// Arguments for the benchmark itself: ./x bench -- --help
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--package",
        "agentiso",
        "--package",
        "agentiso-bench",
    ]))?;
    let release = prepare::target_dir()?.join("release");
    shell::run(
        shell::command(release.join("agentiso-bench"))
            .args(&options.arguments)
            .env("AGENTISO_BIN", release.join("agentiso"))
            .env("AGENTISO_TEST_CACHE", prepare::cache_dir()),
    )
}
