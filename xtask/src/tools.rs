//! Cargo subcommands that chores need: installed once from source if they are missing.

use anyhow::{Context, Result};

use crate::shell;

/// Makes `cargo <name>` work.
pub(crate) fn ensure(name: &str) -> Result<()> {
    if shell::succeeds(shell::cargo().args([name, "--version"])) {
        return Ok(());
    }
    let package = format!("cargo-{name}");
    eprintln!("{package} is missing; installing it takes some minutes, once.");
    // Without optimisation the build takes half the time, and the tool only runs for seconds.
    shell::run(
        shell::cargo()
            .args(["install", "--locked", &package])
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    )
    .with_context(|| format!("{package} could not be installed; check that cargo reaches its registry"))
}
