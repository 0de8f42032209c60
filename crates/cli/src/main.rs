//! The program `agentiso`: parses the arguments, runs one command and returns its exit code.
//!
//! Commands are in [`commands`], one file each. They share little: the configuration ([`context`]), failures
//! ([`failure`]), and the printing of results and progress ([`output`], [`progress`]).
#![expect(clippy::print_stderr, reason = "a program whose output is its purpose")]

mod client;
mod commands;
mod context;
mod example_config;
mod failure;
mod hints;
mod other_daemon;
mod output;
mod pipe;
mod processes;
mod progress;
mod quarantine;
mod runtime;
mod shellwords;
mod vm_setup;

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
