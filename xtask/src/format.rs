//! `./x fmt`: rustfmt over the workspace and the fuzz targets, which are a workspace of their own.

use anyhow::Result;
use clap::Args;

use crate::shell;

#[derive(Args)]
pub(crate) struct Options {
    /// Change nothing; fail if something is not formatted
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut manifests = vec!["Cargo.toml"];
    if shell::root().join("fuzz/Cargo.toml").exists() {
        manifests.push("fuzz/Cargo.toml");
    }
    for manifest in manifests {
        let mut command = shell::cargo();
        command.args(["fmt", "--all", "--manifest-path", manifest]);
        if options.check {
            command.arg("--check");
        }
        shell::run(&mut command)?;
    }
    Ok(())
}
