//! `agentiso image`: base images. They are files, so these commands need no daemon.

mod build;
mod import;
mod ls;
mod rm;

use std::process::ExitCode;

use agentiso_core::names::ImageName;
use agentiso_daemon::ledger;
use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

/// Build, import, list and remove base images
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(ls::Arguments),
    Build(build::Arguments),
    Import(import::Arguments),
    Rm(rm::Arguments),
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Ls(arguments) => ls::run(context, &arguments),
        Command::Build(arguments) => build::run(context, &arguments),
        Command::Import(arguments) => import::run(context, &arguments),
        Command::Rm(arguments) => rm::run(context, &arguments),
    }
}

/// Turns text from the command line into an image's name.
fn parse_name(text: &str) -> Result<ImageName, String> {
    ImageName::parse(text).map_err(|error| error.to_string())
}

/// The workspaces whose disks rest on an image, by the state file.
fn users(context: &Context, image: &ImageName) -> Vec<String> {
    match ledger::read(&context.config.paths.state_file) {
        Ok(None) => Vec::new(),
        Ok(Some(document)) => document
            .workspaces
            .values()
            .filter(|stored| stored.image.name == *image)
            .map(|stored| format!("workspace {}", stored.name))
            .collect(),
        // Without the state nobody can say that the image is free.
        Err(error) => vec![format!("perhaps some workspace (the state cannot be read: {error})")],
    }
}
