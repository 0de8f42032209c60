//! `agentiso daemon`: runs the daemon in the foreground, shows its status, or stops it.

use std::process::ExitCode;
use std::time::Duration;

use agentiso_daemon::{FoundDaemon, find_daemon};
use agentiso_mcp::Mcp;
use clap::Subcommand;
use serde_json::json;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::client::{self, Client};
use crate::context::Context;
use crate::failure::Failure;
use crate::{hints, other_daemon, output, runtime};

/// The log filter without RUST_LOG. The MCP library logs every message at the level `info`.
const DEFAULT_FILTER: &str = "info,rmcp=warn";

/// The time that the runtime waits at the end for threads that are in a system call.
const LAST_THREADS: Duration = Duration::from_secs(2);

/// Run the daemon in the foreground, or show or stop the running one
///
/// There is one daemon per state file. Commands and `agentiso serve` start it when they need it; run it by hand only under a
/// service manager or to watch its log. On SIGTERM or SIGINT it shuts down all workspaces, saves the state and exits.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  agentiso daemon
  RUST_LOG=debug agentiso daemon
  agentiso daemon status
  agentiso daemon stop"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    Status(Status),
    Stop(Stop),
}

/// Show whether the daemon is running
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso daemon status
  agentiso daemon status --json | jq .pid")]
struct Status {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shut down all workspaces and stop the daemon
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso daemon stop")]
struct Stop {}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        None => foreground(context),
        Some(Command::Status(arguments)) => status(context, &arguments),
        Some(Command::Stop(Stop {})) => stop(context),
    }
}

fn foreground(context: &Context) -> Result<ExitCode, Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::stderr_has_colour())
        // A log on a full disk must not end the daemon.
        .log_internal_errors(false)
        .finish()
        .with(filter_fn(is_loggable))
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the async runtime: {error}")))?;
    let mcp = Mcp::new(context.config.server.tools.clone());
    let ended = runtime.block_on(agentiso_daemon::run(context.config.clone(), mcp, hints::of));
    runtime.shutdown_timeout(LAST_THREADS);
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Suppresses logs of the MCP library below the level `info`, because they hold whole requests, which may have secrets.
fn is_loggable(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("rmcp") || *metadata.level() <= Level::INFO
}

fn status(context: &Context, arguments: &Status) -> Result<ExitCode, Failure> {
    let paths = &context.config.paths;
    let found = find_daemon(paths);
    let answer = runtime::block_on(async {
        match Client::open_running(context).await? {
            Some(mut client) => Ok(Some(client.status().await?)),
            None => Ok::<_, Failure>(None),
        }
    })??;
    let holder = match found {
        Some(FoundDaemon::Ours { pid }) => Some(pid),
        Some(FoundDaemon::Other { owner, in_our_directory }) if answer.is_none() => {
            let failure = Failure::new(other_daemon::sentence(paths, &owner));
            return Err(failure.hint(other_daemon::hint(in_our_directory)));
        }
        Some(FoundDaemon::Other { .. }) | None => None,
    };
    if arguments.json {
        output::json(&match &answer {
            Some(status) => json!(status),
            None => json!({ "pid": holder }),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    match (&answer, holder) {
        (Some(status), _) => {
            output::line(&format!("daemon: running, pid {}, version {}", status.pid, status.version))?;
            output::line(&format!("workspaces: {}, {} running", status.workspaces, status.running))?;
            if let Some(host) = &status.host {
                output::line(&format!("VMs: {}, {}", host.accelerator, host.qemu_version))?;
            }
            if let Some(problem) = &status.host_problem {
                output::line(&format!("VMs: cannot run: {problem}"))?;
            }
            output::line(&format!("log: {}", paths.daemon_log().display()))?;
        }
        (None, Some(pid)) => {
            output::line(&format!("daemon: pid {pid} holds the lock but does not accept connections"))?
        }
        (None, None) => output::line("daemon: not running")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn stop(context: &Context) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        match Client::open_running(context).await? {
            Some(client) => {
                client.into_control().shutdown().await.map_err(client::control_failure)?;
                output::line("daemon stopped")
            }
            None => output::line("no daemon is running"),
        }
    })??;
    Ok(ExitCode::SUCCESS)
}
