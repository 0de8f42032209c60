//! `agentiso serve`: connects one MCP client on standard input and output, or several over HTTP, to the daemon.

mod http;
mod metrics;
mod token_file;

use std::io::{self, IsTerminal};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use agentiso_daemon::McpOptions;
use agentiso_mcp::Profile;
use tokio::signal::unix::{SignalKind, signal};

use crate::client::{self, Client};
use crate::context::Context;
use crate::failure::Failure;
use crate::pipe::{self, End};
use crate::runtime;

/// Serve MCP on standard input and output, or over HTTP
///
/// Starts the daemon if it is not running. The command ends when standard input ends; workspaces stay and can be adopted by
/// the next session. On a terminal there is no client to talk to, so it only waits.
///
/// With --http it serves any number of clients at http://ADDR/mcp until it is interrupted. Clients need the bearer token,
/// which is generated on the first start into a file that only you can read. HTTP is not encrypted: for clients on other
/// hosts, use a TLS proxy or an SSH tunnel.
///
/// With --metrics-port, the daemon's metrics are served at http://127.0.0.1:PORT/metrics in OpenMetrics format, and a health
/// check at /healthz. docs/metrics.md lists the metrics.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  claude mcp add agentiso -- agentiso serve
  agentiso serve --tools core
  agentiso serve --tools exec,file_read,workspace_create
  agentiso serve --read-only --config /etc/agentiso.toml
  agentiso serve --metrics-port 9184
  agentiso serve --http 127.0.0.1:3111
  agentiso serve --http 127.0.0.1:3111 --token-file /etc/agentiso.token
  agentiso serve --http 10.0.0.5:3111 --http-allow-remote --http-host agents.example")]
pub(crate) struct Arguments {
    /// Tools to offer: full, core, or a comma-separated list of names [default: server.tools, which is full]
    #[arg(long, value_name = "core|full|LIST")]
    tools: Option<String>,
    /// Offer only read-only tools
    #[arg(long)]
    read_only: bool,
    /// Serve metrics on this port of 127.0.0.1; 0 picks a free port
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    #[command(flatten)]
    http: http::HttpArguments,
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    let metrics = arguments.metrics_port;
    if arguments.http.address().is_none() && io::stdin().is_terminal() {
        return wait_on_terminal(context, metrics);
    }
    let tools = arguments.tools.as_deref().unwrap_or(&context.config.server.tools);
    if let Err(error) = Profile::parse(tools, arguments.read_only) {
        return Err(Failure::usage(error.to_string()));
    }
    let options = McpOptions { tools: arguments.tools, read_only: arguments.read_only };
    if let Some(address) = arguments.http.address() {
        return http::run(context, address, &arguments.http, options, metrics);
    }
    let runtime = runtime::runtime()?;
    let socket = runtime.block_on(async {
        serve_metrics(context, metrics).await?;
        connect(context, options).await
    })?;
    // Threads carry the bytes. The runtime only serves metrics, which end with the pipe.
    let ended = pipe::run(io::stdin(), io::stdout(), socket);
    runtime.shutdown_background();
    match ended {
        Ok(End::Client) => Ok(ExitCode::SUCCESS),
        Ok(End::Daemon) => {
            Err(Failure::new("the daemon ended while the client was connected").hint(format!(
                "its log is {}; restart the client to start a new daemon",
                context.config.paths.daemon_log().display()
            )))
        }
        Err(error) => Err(Failure::new(format!("the connection to the daemon failed: {error}"))),
    }
}

/// Starts serving metrics, before the first client connects. They are served until the runtime ends.
async fn serve_metrics(context: &Context, port: Option<u16>) -> Result<(), Failure> {
    if let Some(port) = port {
        let metrics = metrics::Metrics::bind(context, port).await?;
        tokio::spawn(metrics.serve());
    }
    Ok(())
}

/// A blocking connection for the threads.
async fn connect(context: &Context, options: McpOptions) -> Result<UnixStream, Failure> {
    let stream = client::connect_mcp(context, options).await?.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn wait_on_terminal(context: &Context, metrics: Option<u16>) -> Result<ExitCode, Failure> {
    let program =
        std::env::current_exe().map_or_else(|_| "agentiso".to_owned(), |path| path.display().to_string());
    runtime::runtime()?.block_on(async {
        serve_metrics(context, metrics).await?;
        Client::open(context).await?;
        eprintln!(
            "agentiso serve expects an MCP client on standard input, but this is a terminal. Let a client start it, for \
             example: claude mcp add agentiso -- {program} serve"
        );
        eprintln!("The daemon is running. Press ctrl-C to end this command; the daemon keeps running.");
        let mut terminated = signal(SignalKind::terminate()).map_err(runtime::signal_failure)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(runtime::signal_failure)?;
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}
