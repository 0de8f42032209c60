//! The daemon's service at a port of the gateway, which the kernel brings to our listener.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::hub::Hub;
use crate::gateway::Service;

/// Until a listener that failed is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts what the kernel brings, until the bridge is closed.
pub(super) async fn serve(hub: Arc<Hub>, listener: TcpListener, service: Arc<dyn Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                // Whoever is no machine of ours is hung up on: the host itself, for one.
                let (Some(place), IpAddr::V4(guest)) = (hub.place_of(client), client.ip()) else { continue };
                let Ok(permit) = place.flows.clone().try_acquire_owned() else { continue };
                let serving = service.serve(guest, Box::new(stream));
                place.spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for the service cannot be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
