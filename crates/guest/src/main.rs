//! The program `agentiso-guest`. Its role (init, keeper, agent) depends on its process id and arguments.

use std::process::ExitCode;

use agentiso_guest::args::{Role, parse};
use agentiso_guest::{console, init, server};

fn main() -> ExitCode {
    let role = match parse(std::env::args_os(), std::process::id()) {
        Ok(role) => role,
        Err(error) => {
            console::log(format_args!("{error}"));
            return ExitCode::from(2);
        }
    };
    let result = match role {
        Role::Init => init::run(),
        Role::Keeper { agent, fds } => init::keep(agent, fds),
        Role::Agent { fds } => server::run_agent(fds),
        Role::Socket { fd } => server::run_on_socket(fd),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::log(format_args!("{error}"));
            ExitCode::FAILURE
        }
    }
}
