//! `./x bench`: builds what is measured, with optimisation, and runs the benchmark of tests/e2e on it.

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
    shell::run(shell::cargo().args(["build", "--release", "--package", "agentiso"]))?;
    let binary = prepare::target_dir()?.join("release/agentiso");
    let cache = prepare::fill_cache(&binary)?;
    shell::run(
        shell::cargo()
            .args(["run", "--release", "--package", "agentiso-e2e", "--bin", "bench", "--"])
            .args(&options.arguments)
            .env("AGENTISO_BIN", binary)
            .env("AGENTISO_TEST_CACHE", cache),
    )
}
