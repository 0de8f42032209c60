//! `agentiso jobs ls`: lists the jobs of a workspace.

use std::process::ExitCode;

use super::state;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// The most characters of a command in the table.
const SHOWN: usize = 60;

/// List the jobs of a workspace, including those that have ended
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso jobs ls dev
  agentiso jobs ls dev --json | jq '.[] | select(.running)'")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let jobs = runtime::block_on(async { Client::open(context).await?.jobs(&arguments.workspace).await })??;
    if arguments.json {
        output::json(&jobs)?;
        return Ok(ExitCode::SUCCESS);
    }
    if jobs.is_empty() {
        output::line("no jobs; start one with `agentiso exec --detach`")?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = jobs
        .iter()
        .map(|job| {
            let command: String =
                job.command.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
            [
                job.job_id.to_string(),
                state(job.running, job.exit_code, job.signal),
                format!("{} s", job.seconds),
                (job.stdout_bytes + job.stderr_bytes).to_string(),
                command,
            ]
        })
        .collect();
    output::line(&output::table(["JOB", "STATE", "TIME", "BYTES", "COMMAND"], rows))?;
    Ok(ExitCode::SUCCESS)
}
