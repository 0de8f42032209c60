//! `agentiso snapshot`: takes, lists, compares, removes, exports and imports snapshots.

mod create;
mod diff;
mod export;
mod import;
mod ls;
mod path;
mod rm;

use std::process::ExitCode;

use agentiso_core::names::SnapshotName;
use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

/// Take, list, compare, remove, export and import snapshots of a workspace
///
/// `agentiso restore` goes back to a snapshot, `agentiso fork` creates workspaces from one, `agentiso tree` shows them all.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Create(create::Arguments),
    Ls(ls::Arguments),
    Rm(rm::Arguments),
    Diff(diff::Arguments),
    Export(export::Arguments),
    Import(import::Arguments),
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Create(arguments) => create::run(context, &arguments),
        Command::Ls(arguments) => ls::run(context, &arguments),
        Command::Rm(arguments) => rm::run(context, &arguments),
        Command::Diff(arguments) => diff::run(context, &arguments),
        Command::Export(arguments) => export::run(context, &arguments),
        Command::Import(arguments) => import::run(context, &arguments),
    }
}

/// Parses a snapshot's name from the command line.
pub(super) fn parse_name(text: &str) -> Result<SnapshotName, String> {
    SnapshotName::parse(text).map_err(|error| error.to_string())
}
