//! `agentiso serve --http`: serves MCP over HTTP. Each HTTP session has its own connection to the daemon.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use agentiso_daemon::McpOptions;
use agentiso_http::{Backend, Front, Settings, TokenHash, listen};
use futures::future::BoxFuture;
use tokio::net::{TcpListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{serve_metrics, token_file};
use crate::client::{self, Client};
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

#[derive(clap::Args, Debug)]
pub(super) struct HttpArguments {
    /// Serve MCP over HTTP on this address and port; port 0 picks a free port
    #[arg(long = "http", value_name = "ADDR")]
    address: Option<SocketAddr>,
    /// Allow an address that is reachable from other hosts
    #[arg(long = "http-allow-remote", requires = "address")]
    allow_remote: bool,
    /// Accept this host name, with or without port, in requests; may be repeated
    #[arg(long = "http-host", value_name = "NAME", requires = "address")]
    hosts: Vec<String>,
    /// File with the token, mode 0600 [default: http-token next to the state file]
    #[arg(long, value_name = "FILE", requires = "address")]
    token_file: Option<PathBuf>,
}

impl HttpArguments {
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

pub(super) fn run(
    context: &Context,
    address: SocketAddr,
    arguments: &HttpArguments,
    options: McpOptions,
    metrics: Option<u16>,
) -> Result<ExitCode, Failure> {
    if !address.ip().to_canonical().is_loopback() && !arguments.allow_remote {
        let sentence = format!("{address} is reachable from other hosts, and HTTP is not encrypted");
        return Err(Failure::usage(sentence).hint(
            "use 127.0.0.1, or --http-allow-remote if you trust the network between you and your clients",
        ));
    }
    runtime::runtime()?.block_on(async {
        serve_metrics(context, metrics).await?;
        // Connects before the first client does: this makes the directories, and the user sees any error.
        Client::open(context).await?;
        let default = context.config.paths.http_token();
        let token = match &arguments.token_file {
            Some(path) => token_file::read(path)?,
            None => token_file::read_or_make(&default)?,
        };
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Failure::new(format!("cannot listen on {address}: {error}")))?;
        let local = listener.local_addr()?;
        output::line(&format!("MCP at http://{local}/mcp"))?;
        let token_path = arguments.token_file.as_ref().unwrap_or(&default);
        output::line(&format!("token in {}", token_path.display()))?;
        let stop = CancellationToken::new();
        let backend = Daemon { context: context.clone(), options, token: token.hash() };
        let front = Arc::new(Front::new(backend, Settings::CLIENTS));
        let serving = listen(front, listener, arguments.hosts.clone(), stop.clone());
        tokio::pin!(serving);
        let mut terminated = signal(SignalKind::terminate()).map_err(runtime::signal_failure)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(runtime::signal_failure)?;
        tokio::select! {
            () = &mut serving => return Ok(ExitCode::SUCCESS),
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        stop.cancel();
        serving.await;
        Ok(ExitCode::SUCCESS)
    })
}

#[derive(Debug)]
struct Daemon {
    context: Context,
    options: McpOptions,
    token: TokenHash,
}

impl Backend for Daemon {
    fn knows(&self, token: &str) -> bool {
        self.token.is_of(token)
    }

    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
        Box::pin(async {
            let connected = client::connect_mcp(&self.context, self.options.clone()).await;
            connected.map_err(|failure| failure.to_string())
        })
    }
}
