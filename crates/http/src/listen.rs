//! Serves a front on a TCP socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::front::Front;
use crate::guard::Hosts;
use crate::settings::GRACE;

/// Pause after a failed accept, such as without free descriptors: others may still be served, but retrying at once
/// would spin.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Serves until `stop`; then calls in progress may continue for a few seconds. `names` are further names of this
/// server.
pub async fn listen<B: Backend>(
    front: Arc<Front<B>>,
    listener: TcpListener,
    names: Vec<String>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        // An answer goes out in one piece and must not wait for more data.
        let Ok(local) = stream.set_nodelay(true).and_then(|()| stream.local_addr()) else { continue };
        let (front, hosts) = (front.clone(), Hosts::new(local, names.clone()));
        connections.spawn(async move { front.serve(stream, &hosts).await });
    }
    drop(listener);
    front.close();
    let rest = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, rest).await.is_err() {
        tracing::info!(left = connections.len(), "HTTP calls were aborted at shutdown");
    }
}
