//! The whole run of a daemon, for `agentiso daemon`: open, listen, serve, and end on a signal.

use std::sync::Arc;

use agentiso_core::config::Config;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

use crate::control::{BindError, Listener, Readiness, ReadyReport, ShellHint};
use crate::daemon::{Daemon, OpenError};
use crate::lock::LockError;
use crate::mcp::McpHandler;
use crate::own_log;
use crate::qemu_vms::QemuVms;
use crate::vms::Vms;

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot handle signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// Runs a daemon over QEMU.
pub async fn run(config: Config, mcp: impl McpHandler, hint: ShellHint) -> Result<(), RunError> {
    let vms = Arc::new(QemuVms::new(config.clone()));
    run_with(config, vms, mcp, hint).await
}

/// Runs a daemon until SIGTERM, SIGINT or a request to shut down; all VMs are stopped before it returns.
pub async fn run_with(
    config: Config,
    vms: Arc<dyn Vms>,
    mcp: impl McpHandler,
    hint: ShellHint,
) -> Result<(), RunError> {
    let readiness = Readiness::from_env();
    let opened = open(config, vms).await;
    let (daemon, listener) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let report = match &error {
                RunError::Open(OpenError::Lock(LockError::Held { .. })) => ReadyReport::Held,
                RunError::Open(_) | RunError::Bind(_) | RunError::Signals(_) => {
                    ReadyReport::Failed(error.to_string())
                }
            };
            readiness.report(&report);
            return Err(error);
        }
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    readiness.report(&ReadyReport::Ready);
    tracing::info!(socket = %daemon.config().paths.daemon_socket().display(), "listening");
    let log = daemon.config().paths.daemon_log();
    tokio::select! {
        biased;
        // Never ends; it is only polled here.
        never = own_log::keep_in_bounds(log) => match never {},
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping all VMs"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping all VMs"),
        () = daemon.clone().serve(listener, mcp, hint) => tracing::info!("asked to shut down: stopping all VMs"),
    }
    daemon.shutdown().await;
    Ok(())
}

async fn open(config: Config, vms: Arc<dyn Vms>) -> Result<(Daemon, Listener), RunError> {
    let daemon = Daemon::open_with(config, vms).await?;
    let listener = Listener::bind(&daemon.config().paths.daemon_socket())?;
    Ok((daemon, listener))
}
