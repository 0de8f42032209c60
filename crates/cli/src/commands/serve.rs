//! `agentiso serve`: the bridge between an MCP client on our standard streams, or several over HTTP, and the daemon.

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
/// Starts the daemon if none runs. When standard input ends, so does this command; workspaces stay and can be
/// adopted by the next session. On a terminal there is no client to speak to, so it only waits.
///
/// With --http it serves any number of clients at http://ADDR/mcp until it is interrupted. They need the bearer token
/// that is in a file only you can read; the first start makes it. HTTP is not encrypted: beyond this host, put a proxy
/// with TLS or an SSH tunnel in front.
///
/// With --metrics-port, http://127.0.0.1:PORT/metrics shows what the daemon counts, as OpenMetrics text, and /healthz whether
/// it answers; docs/metrics.md tells what there is.
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
    /// Which tools are offered: full, core, or names separated by commas [default: server.tools, which is full]
    #[arg(long, value_name = "core|full|LIST")]
    tools: Option<String>,
    /// Offer only tools that change nothing
    #[arg(long)]
    read_only: bool,
    /// Serve metrics at this port of 127.0.0.1; 0 takes a free one
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
    // Bytes are carried by threads; what is left to the runtime are metrics, and they end with the pipe.
    let ended = pipe::run(io::stdin(), io::stdout(), socket);
    runtime.shutdown_background();
    match ended {
        Ok(End::Client) => Ok(ExitCode::SUCCESS),
        Ok(End::Daemon) => {
            Err(Failure::new("the daemon ended while the client was connected").hint(format!(
                "its log is {}; starting the client again starts a daemon",
                context.config.paths.daemon_log().display()
            )))
        }
        Err(error) => Err(Failure::new(format!("the connection to the daemon cannot be used: {error}"))),
    }
}

/// Metrics are there before the first client is. They are served until the runtime ends.
async fn serve_metrics(context: &Context, port: Option<u16>) -> Result<(), Failure> {
    if let Some(port) = port {
        let metrics = metrics::Metrics::bind(context, port).await?;
        tokio::spawn(metrics.serve());
    }
    Ok(())
}

/// A connection for threads, which wait for its bytes.
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
            "agentiso serve speaks MCP on standard input, and this is a terminal. Let a client start it instead, for \
             example: claude mcp add agentiso -- {program} serve"
        );
        eprintln!("The daemon is running. Waiting for ctrl-C, which ends this command and not the daemon.");
        let mut terminated = signal(SignalKind::terminate()).map_err(runtime::no_signals)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(runtime::no_signals)?;
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}
