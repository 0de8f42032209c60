//! `agentiso image`: manages base images. They are files, so these commands need no daemon.

mod build;
mod import;
mod ls;
mod rm;

use std::process::ExitCode;

use agentiso_core::names::ImageName;
use agentiso_daemon::ledger::{self, Found};
use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;
use crate::quarantine;

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

/// Parses an image's name from the command line.
fn parse_name(text: &str) -> Result<ImageName, String> {
    ImageName::parse(text).map_err(|error| error.to_string())
}

/// The workspaces whose disks depend on an image, according to the ledger and the quarantine.
fn users(context: &Context, image: &ImageName) -> Vec<String> {
    let unknown =
        |problem: String| format!("possibly a workspace (the state file cannot be read: {problem})");
    let mut users = match ledger::read(&context.config.paths.state_file) {
        Ok(Found::Absent) => Vec::new(),
        Ok(Found::Whole(document)) => document
            .workspaces
            .values()
            .filter(|stored| stored.image.name == *image)
            .map(|stored| format!("workspace {}", stored.name))
            .collect(),
        // Without the ledger it is unknown whether the image is unused.
        Ok(Found::Damaged { problems, .. }) => vec![unknown(problems.join("; "))],
        Err(error) => vec![unknown(error.to_string())],
    };
    // A workspace in quarantine may be recovered later.
    let quarantined = quarantine::found(&context.config.paths).into_iter();
    let of_image = quarantined.filter(|item| match &item.image {
        Some(of) => of == image,
        None => !item.is_team(),
    });
    users.extend(of_image.map(|item| format!("{} (in quarantine)", item.what)));
    users
}
