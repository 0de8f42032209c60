//! `agentiso jobs show`: prints the output of a job.

use std::io;
use std::process::ExitCode;

use agentiso_daemon::control::jobs::{JobOutput, JobParams};
use agentiso_daemon::control::wire::Captured;

use super::state;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::runtime;

/// The time that one poll waits for the end of a job with `--follow`.
const WAIT_MS: u64 = 1000;

/// Show the output of a job
///
/// Its standard output and standard error go to those of this command. If there is very much output, only its beginning and
/// end are kept.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso jobs show dev 1
  agentiso jobs show dev 1 -f            follow it until it ends")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Number of the job
    job: u64,
    /// Follow the output until the job ends
    #[arg(long, short)]
    follow: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let ended = runtime::block_on(async {
        let mut client = Client::open(context).await?;
        let workspace = client.resolve(&arguments.workspace).await?;
        let mut params = JobParams { workspace, job_id: arguments.job, ..JobParams::default() };
        loop {
            let output = client.job_output(params.clone()).await?;
            let out = print(&mut io::stdout().lock(), &output.stdout)?;
            let err = print(&mut io::stderr().lock(), &output.stderr)?;
            params.stdout_offset += out;
            params.stderr_offset += err;
            let all = out == output.stdout.total_bytes && err == output.stderr.total_bytes;
            if all && !(output.running && arguments.follow) {
                return Ok::<JobOutput, Failure>(output);
            }
            params.wait_ms = if all { WAIT_MS } else { 0 };
        }
    })??;
    if !arguments.follow || ended.exit_code != Some(0) {
        eprintln!("agentiso: job {}: {}", arguments.job, state(ended.running, ended.exit_code, ended.signal));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints output and returns the number of stream bytes that it covers. If the first bytes were not kept, it covers
/// everything up to the end of the stream.
fn print(target: &mut impl io::Write, output: &Captured) -> Result<u64, Failure> {
    let (head, tail) = (output.head.0.len() as u64, output.tail.0.len() as u64);
    let lost = head == 0 && output.total_bytes > tail;
    let write = |target: &mut dyn io::Write| {
        target.write_all(&output.head.0)?;
        if lost {
            writeln!(target, "\n… {} bytes were not kept …", output.total_bytes - tail)?;
        }
        target.write_all(&output.tail.0)?;
        target.flush()
    };
    write(target).map_err(|error| Failure::new(format!("cannot write the output: {error}")))?;
    Ok(if head == 0 { output.total_bytes } else { head + tail })
}
