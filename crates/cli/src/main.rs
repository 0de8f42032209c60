//! The program `agentiso`: arguments in, one command, an exit code out.
//!
//! Commands live in [`commands`], one file each. What they share is small: where the configuration comes from
//! ([`context`]), how failures are told ([`failure`]), and how results and progress are shown ([`output`],
//! [`progress`]).
#![expect(clippy::print_stderr, reason = "a program whose output is its purpose")]

mod client;
mod commands;
mod context;
mod example_config;
mod failure;
mod machinery;
mod other_daemon;
mod output;
mod pipe;
mod processes;
mod progress;
mod quarantine;
mod runtime;
mod shellwords;

#[cfg(test)]
mod docs;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = commands::Arguments::parse();
    match commands::run(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
