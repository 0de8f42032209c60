//! `agentiso jobs kill`: sends a signal to a job.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Kill a job and everything it started
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso jobs kill dev 1
  agentiso jobs kill dev 1 --signal 15   let it shut down")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Number of the job
    job: u64,
    /// Signal number
    #[arg(long, short, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(i32).range(1..=31))]
    signal: i32,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, job, signal } = arguments;
    let running =
        runtime::block_on(async { Client::open(context).await?.kill_job(workspace, *job, *signal).await })??;
    let after = if running { "is still running" } else { "has ended" };
    output::line(&format!("job {job} of {workspace} {after}"))?;
    Ok(ExitCode::SUCCESS)
}
