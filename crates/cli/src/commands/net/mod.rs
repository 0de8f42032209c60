//! `agentiso net`: shows and changes policies, shows flows, and manages forwards.

mod forward;
mod log;
mod ls;
mod policy;
mod unforward;

use std::process::ExitCode;

use agentiso_daemon::control::wire::Workspace;
use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// Show and change network policies, forward ports, show refused connections
///
/// A workspace has no network access until it is allowed. Changes take effect immediately, and connections that are no longer
/// allowed are closed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso net ls
  agentiso net policy dev --allow-domain github.com --allow-domain '*.githubusercontent.com'
  agentiso net policy dev --internet on
  agentiso net forward dev 8080
  agentiso net log dev -f")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(ls::Arguments),
    Policy(policy::Arguments),
    Forward(forward::Arguments),
    Unforward(unforward::Arguments),
    Log(log::Arguments),
}

/// Warns about problems of a workspace's network after it was started.
pub(super) fn warn(workspace: &Workspace) {
    for warning in workspace.network_trouble.sentences() {
        eprintln!("warning: {}", output::printable(&warning));
    }
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Ls(arguments) => ls::run(context, &arguments),
        Command::Policy(arguments) => policy::run(context, arguments),
        Command::Forward(arguments) => forward::run(context, &arguments),
        Command::Unforward(arguments) => unforward::run(context, &arguments),
        Command::Log(arguments) => log::run(context, &arguments),
    }
}
