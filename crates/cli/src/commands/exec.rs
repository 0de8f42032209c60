//! `agentiso exec`: runs a command in a workspace and prints its output as it comes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use agentiso_core::env;
use agentiso_core::paths::GuestPath;
use agentiso_daemon::control::wire::{Event, ExecParams, ExecResult, Stream};

use crate::client::Client;
use crate::context::Context;
use crate::failure::{Failure, INTERRUPTED, NOT_RUN, TIMED_OUT};
use crate::{output, runtime, shellwords};

/// Run a command in a workspace
///
/// A single word is run by the workspace's shell; several words are a program and its arguments, passed unchanged. Output is
/// printed as it arrives. ctrl-C kills the command and everything it started.
///
/// With --detach the command keeps running in the background as a job, and its number is printed: see `agentiso jobs`.
///
/// Exits with the command's exit code (128 plus the signal number if a signal killed it), 124 after a timeout, 125 if the
/// command could not be run, 130 after ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso exec dev -- uname -a
  agentiso exec dev -- 'cd /workspace && make 2>&1 | tail'
  agentiso exec dev --workdir /workspace --env CI=1 --timeout 600 -- cargo test
  agentiso exec -d dev -- python3 -m http.server")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Kill the command after this many seconds
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Run it in the background as a job and print the job number
    #[arg(long, short, conflicts_with = "timeout")]
    detach: bool,
    /// Working directory [default: /root]
    #[arg(long, short = 'w', value_name = "DIR", value_parser = |text: &str| GuestPath::parse(text).map_err(|error| error.to_string()))]
    workdir: Option<GuestPath>,
    /// Set an environment variable; without =VALUE, the value from this shell is used
    #[arg(long, short, value_name = "NAME[=VALUE]", value_parser = variable)]
    env: Vec<(String, String)>,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Parses `NAME=VALUE`, or `NAME` for a variable of this process's environment.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => {
            let value = std::env::var(text)
                .map_err(|_| format!("{text} is not set in this shell, and no value was given"))?;
            (text.to_owned(), value)
        }
    };
    env::check([(name.as_str(), value.as_str())].into_iter()).map_err(|error| error.to_string())?;
    Ok((name, value))
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    let params = ExecParams {
        workspace: arguments.workspace,
        command: shellwords::command_line(&arguments.command),
        workdir: arguments.workdir.map(|path| path.as_str().to_owned()),
        env: arguments.env.into_iter().collect::<BTreeMap<_, _>>(),
        timeout_ms: arguments.timeout.map(|seconds| seconds * 1000),
        // All output comes as events, so the result needs none.
        head_bytes: 0,
        tail_bytes: 0,
        stream: true,
    };
    if arguments.detach {
        let job = runtime::block_on(async { Client::open(context).await?.start_job(params).await })?
            .map_err(not_run)?;
        output::line(&job.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let timeout = arguments.timeout;
    let ended = runtime::block_on(async {
        let mut client = Client::open(context).await?;
        client.exec(params, show).await
    });
    match ended {
        Ok(Ok(end)) => Ok(exit_code(&end, timeout)),
        Ok(Err(failure)) => Err(failure.code(NOT_RUN)),
        // Dropping the connection made the daemon kill the command; no message is needed.
        Err(failure) if failure.exit_code() == INTERRUPTED => Ok(ExitCode::from(INTERRUPTED)),
        Err(failure) => Err(failure.code(NOT_RUN)),
    }
}

fn not_run(failure: Failure) -> Failure {
    failure.code(NOT_RUN)
}

/// Prints output. Errors are ignored, because the command's exit code matters even if the reader of the output is gone.
fn show(event: Event) {
    let Event::Output { stream, data } = event else { return };
    let _ = match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(&data.0).and_then(|()| out.flush())
        }
        Stream::Stderr => io::stderr().lock().write_all(&data.0),
    };
}

fn exit_code(end: &ExecResult, timeout: Option<u64>) -> ExitCode {
    if end.timed_out {
        let limit = timeout.map(|seconds| format!(" after {seconds} s")).unwrap_or_default();
        eprintln!("agentiso: the command timed out{limit} and was killed");
        return ExitCode::from(TIMED_OUT);
    }
    let code = match (end.exit_code, end.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => i32::from(NOT_RUN),
    };
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_refuses_reserved_and_malformed_variables() {
        assert!(variable("LD_PRELOAD=x").is_err());
        assert!(variable("1A=x").is_err());
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
    }

    #[test]
    fn unset_variable_without_value_is_refused() {
        assert!(variable("PATHOLOGICALLY_UNSET").is_err_and(|message| message.contains("not set")));
    }
}
