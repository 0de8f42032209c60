//! The command line's side of a control connection: it sends one request at a time and receives its events as they
//! come.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};

use super::connect::Connected;
use super::hello::Welcome;
use super::server::MAX_LINE_BYTES;
use super::wire::{Event, Op, Reply, Request, WireError};

/// A daemon that shuts down stops its VMs first, in at most half a minute.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum ControlError {
    /// The daemon's answer to the request.
    #[error(transparent)]
    Daemon(WireError),
    #[error("the daemon closed the connection before it answered")]
    Closed,
    #[error("the connection to the daemon broke: {0}")]
    Broken(#[from] LinesCodecError),
    #[error("malformed answer from the daemon: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the daemon did not stop within {} s", SHUTDOWN_DEADLINE.as_secs())]
    ShutdownTimedOut,
}

/// A control connection. Dropping it cancels the request that is under way.
#[derive(Debug)]
pub struct ControlClient {
    lines: Framed<UnixStream, LinesCodec>,
    welcome: Welcome,
    next_id: u64,
}

impl ControlClient {
    pub fn new(connected: Connected) -> Self {
        let codec = LinesCodec::new_with_max_length(MAX_LINE_BYTES);
        Self { lines: Framed::new(connected.stream, codec), welcome: connected.welcome, next_id: 1 }
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Sends one request and waits for its result; its events go to `on_event`.
    pub async fn call<T: DeserializeOwned>(
        &mut self,
        op: Op,
        mut on_event: impl FnMut(Event),
    ) -> Result<T, ControlError> {
        let id = self.next_id;
        self.next_id += 1;
        let line = serde_json::to_string(&Request { id, op })?;
        self.lines.send(line).await?;
        while let Some(line) = self.lines.next().await {
            match serde_json::from_str(&line?)? {
                Reply::Event { id: of, event } if of == id => on_event(event),
                Reply::Result { id: of, result } if of == id => return Ok(serde_json::from_value(result)?),
                Reply::Error { id: of, error } if of.is_none_or(|of| of == id) => {
                    return Err(ControlError::Daemon(error));
                }
                // The reply to a request that was given up.
                Reply::Event { .. } | Reply::Result { .. } | Reply::Error { .. } => {}
            }
        }
        Err(ControlError::Closed)
    }

    /// Sends a request whose events are of no interest.
    pub async fn ask<T: DeserializeOwned>(&mut self, op: Op) -> Result<T, ControlError> {
        self.call(op, |_| ()).await
    }

    /// Returns when the daemon has stopped its VMs and ended.
    pub async fn shutdown(mut self) -> Result<(), ControlError> {
        let () = self.ask(Op::Shutdown).await?;
        let ended = async { while let Some(Ok(_)) = self.lines.next().await {} };
        tokio::time::timeout(SHUTDOWN_DEADLINE, ended).await.map_err(|_| ControlError::ShutdownTimedOut)
    }
}
