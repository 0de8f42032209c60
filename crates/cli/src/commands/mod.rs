//! The commands and their dispatch. Each file holds one command: its arguments, its help and its code.

mod check;
mod completions;
mod create;
mod daemon;
mod dashboard;
mod exec;
mod fork;
mod image;
mod init;
mod jobs;
mod logs;
mod mcp_token;
mod net;
mod orchestrate;
mod ps;
mod recover;
mod restore;
mod rm;
mod serve;
mod snapshot;
mod start;
mod status;
mod stop;
mod team_status;
mod tree;
mod vault;

use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory, Parser, Subcommand};

use crate::context::{ConfigArgument, Context};
use crate::failure::Failure;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

/// Real Linux VMs for AI agents, cheap to break.
///
/// Every workspace is a microVM with its own kernel. AI agents use it over MCP with `agentiso serve`; people use the
/// other commands.
#[derive(Parser, Debug)]
#[command(name = "agentiso", version, styles = STYLES, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  agentiso init                       set up kernel, image and templates
  agentiso create dev                 create a workspace called dev
  agentiso exec dev -- uname -a       run a command in it
  agentiso snapshot create dev clean  take a snapshot
  agentiso restore dev clean          go back to the snapshot
  agentiso fork dev clean try         start a second workspace from it
  agentiso rm dev                     destroy the workspace
  claude mcp add agentiso -- agentiso serve

Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration, 130 interrupted;
exec: the command's own, 124 timed out, 125 could not be run.";

#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::Arguments),
    Daemon(daemon::Arguments),
    Init(init::Arguments),
    Check(check::Arguments),
    Status(status::Arguments),
    TeamStatus(team_status::Arguments),
    Ps(ps::Arguments),
    Create(create::Arguments),
    Exec(exec::Arguments),
    Jobs(jobs::Arguments),
    Start(start::Arguments),
    Stop(stop::Arguments),
    Rm(rm::Arguments),
    Recover(recover::Arguments),
    Logs(logs::Arguments),
    Snapshot(snapshot::Arguments),
    Restore(restore::Arguments),
    Fork(fork::Arguments),
    Tree(tree::Arguments),
    Net(net::Arguments),
    McpToken(mcp_token::Arguments),
    Vault(vault::Arguments),
    Orchestrate(orchestrate::Arguments),
    Dashboard(dashboard::Arguments),
    Image(image::Arguments),
    Completions(completions::Arguments),
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    // Completions do not depend on the configuration: a broken one must not keep a shell from starting.
    if let Command::Completions(arguments) = arguments.command {
        return completions::run(&arguments);
    }
    let context = Context::load(&arguments.config)?;
    match arguments.command {
        Command::Serve(arguments) => serve::run(&context, arguments),
        Command::Daemon(arguments) => daemon::run(&context, arguments),
        Command::Init(arguments) => init::run(&context, arguments),
        Command::Check(arguments) => check::run(&context, &arguments),
        Command::Status(arguments) => status::run(&context, &arguments),
        Command::TeamStatus(arguments) => team_status::run(&context, &arguments),
        Command::Ps(arguments) => ps::run(&context, &arguments),
        Command::Create(arguments) => create::run(&context, arguments),
        Command::Exec(arguments) => exec::run(&context, arguments),
        Command::Jobs(arguments) => jobs::run(&context, arguments),
        Command::Start(arguments) => start::run(&context, &arguments),
        Command::Stop(arguments) => stop::run(&context, &arguments),
        Command::Rm(arguments) => rm::run(&context, &arguments),
        Command::Recover(arguments) => recover::run(&context, &arguments),
        Command::Logs(arguments) => logs::run(&context, &arguments),
        Command::Snapshot(arguments) => snapshot::run(&context, arguments),
        Command::Restore(arguments) => restore::run(&context, &arguments),
        Command::Fork(arguments) => fork::run(&context, arguments),
        Command::Tree(arguments) => tree::run(&context, &arguments),
        Command::Net(arguments) => net::run(&context, arguments),
        Command::McpToken(arguments) => mcp_token::run(&context, &arguments),
        Command::Vault(arguments) => vault::run(&context, arguments),
        Command::Orchestrate(arguments) => orchestrate::run(&context, &arguments),
        Command::Dashboard(arguments) => dashboard::run(&context, &arguments),
        Command::Image(arguments) => image::run(&context, arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    }
}

/// The whole command line as clap sees it, for completions and docs/cli.md.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        definition().debug_assert();
    }

    #[test]
    fn every_command_has_description_and_examples() {
        fn visit(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                let path = format!("{path} {}", sub.get_name());
                assert!(sub.get_about().is_some(), "{path} has no description");
                if sub.has_subcommands() {
                    visit(sub, &path);
                } else {
                    let after = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                    assert!(
                        after.contains("Examples:") && after.contains("agentiso"),
                        "{path} shows no examples"
                    );
                }
            }
        }
        visit(&definition(), "agentiso");
    }
}
