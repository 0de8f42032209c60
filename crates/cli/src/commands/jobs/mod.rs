//! `agentiso jobs`: shows and kills the jobs of a workspace.

mod kill;
mod ls;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

/// List, show and kill the jobs of a workspace
///
/// A job is a command that runs in the background, started with `agentiso exec --detach` or by an AI agent. It ends when the
/// VM ends, and it is part of snapshots with memory.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso exec -d dev -- python3 -m http.server
  agentiso jobs ls dev
  agentiso jobs show dev 1 --follow
  agentiso jobs kill dev 1")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(ls::Arguments),
    Show(show::Arguments),
    Kill(kill::Arguments),
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Ls(arguments) => ls::run(context, &arguments),
        Command::Show(arguments) => show::run(context, &arguments),
        Command::Kill(arguments) => kill::run(context, &arguments),
    }
}

/// The state of a job in words: running, or how it ended.
fn state(running: bool, exit_code: Option<i32>, signal: Option<i32>) -> String {
    match (running, exit_code, signal) {
        (true, _, _) => "running".to_owned(),
        (false, Some(code), _) => format!("exit {code}"),
        (false, None, Some(signal)) => format!("signal {signal}"),
        (false, None, None) => "ended".to_owned(),
    }
}
