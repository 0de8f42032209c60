//! `agentiso vault`: shows and searches the notes of clients.
//!
//! Notes are files of the host, so these commands need no daemon. They use the same code as the tool `vault`.

mod ls;
mod read;
mod search;

use std::process::ExitCode;

use agentiso_vault::{Settings, Vault, VaultError};
use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

/// Read and search the notes that AI agents keep
///
/// The notes are files in the directory vault.path of the configuration; edit them with any editor. AI agents use them
/// through the tool `vault`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso vault ls --recursive
  agentiso vault read plans/today.md
  agentiso vault search 'TODO' --prefix plans")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(ls::Arguments),
    Read(read::Arguments),
    Search(search::Arguments),
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Ls(arguments) => ls::run(context, &arguments),
        Command::Read(arguments) => read::run(context, &arguments),
        Command::Search(arguments) => search::run(context, &arguments),
    }
}

fn open(context: &Context) -> Result<Vault, Failure> {
    let config = &context.config.vault;
    if !config.enabled {
        return Err(Failure::new("the vault is disabled")
            .hint("set vault.enabled and vault.path in the configuration"));
    }
    Ok(Vault::new(Settings {
        path: config.path.clone(),
        extensions: config.extensions.clone(),
        exclude_dirs: config.exclude_dirs.clone(),
    }))
}

fn failed(error: VaultError) -> Failure {
    let hint = match &error {
        VaultError::Root { .. } => Some("create the directory, or set vault.path in the configuration"),
        VaultError::NotFound { .. } => Some("`agentiso vault ls --recursive` lists all notes"),
        VaultError::IsFolder { .. } => Some("`agentiso vault ls` lists the contents of a folder"),
        VaultError::Pattern { .. } => Some("omit --regex to search for plain text"),
        VaultError::Path { .. }
        | VaultError::Exists { .. }
        | VaultError::NotFolder { .. }
        | VaultError::NotRegular { .. }
        | VaultError::Link { .. }
        | VaultError::Excluded { .. }
        | VaultError::TooLarge { .. }
        | VaultError::Binary { .. }
        | VaultError::Frontmatter { .. }
        | VaultError::Busy { .. }
        | VaultError::FileSystem { .. }
        | VaultError::NoSpace { .. }
        | VaultError::Io { .. } => None,
    };
    Failure::new(error.to_string()).maybe_hint(hint.map(str::to_owned))
}

/// Turns an invalid path into a usage failure.
fn parsed<T, E: std::fmt::Display>(path: &str, parsed: Result<T, E>) -> Result<T, Failure> {
    parsed.map_err(|problem| Failure::usage(format!("invalid path {path:?}: {problem}")))
}
