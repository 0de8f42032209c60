//! `agentiso completions`: prints a completion script for a shell.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso completions bash > ~/.local/share/bash-completion/completions/agentiso
  agentiso completions zsh > ~/.zfunc/_agentiso
  agentiso completions fish > ~/.config/fish/completions/agentiso.fish")]
pub(crate) struct Arguments {
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // The script is collected before it is written, because the generator panics if the reader of a pipe goes away.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::definition(), "agentiso", &mut script);
    output::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
