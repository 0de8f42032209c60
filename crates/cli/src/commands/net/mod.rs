//! `agentiso net`: what workspaces may reach, what they tried, and the host's ports that lead into them.

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

/// Show and change what workspaces may reach, forward ports into them, see why a connection was refused
///
/// A workspace reaches nothing until it is allowed to. Changes take effect at once, and connections that are no longer
/// allowed end.
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

/// Says what of a workspace's network is not there, to whoever brought it up.
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
