//! Converts the local connections of `agentiso-host` to the types of this crate.

use agentiso_host::agent::LocalListener;
use futures::{FutureExt, StreamExt};

use super::convert::agent_failure;
use crate::vms::{LocalConnection, LocalConnections};

pub(super) fn connections(listener: LocalListener) -> LocalConnections {
    futures::stream::unfold(Some(listener), |listener| async move {
        let mut listener = listener?;
        match listener.accept().await {
            Ok(connection) => {
                let uptime = connection.uptime;
                let (stream, carried) = connection.into_parts();
                let delivered = async move { carried.to_the_end().await.map_err(agent_failure) }.boxed();
                Some((Ok(LocalConnection { stream, uptime, delivered }), Some(listener)))
            }
            Err(error) => Some((Err(agent_failure(error)), None)),
        }
    })
    .boxed()
}
