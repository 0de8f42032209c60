//! Telling clients that resources changed, in the way of either era.

use futures::StreamExt;
use futures::future::join_all;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};

use super::Server;
use crate::offer::Offer;

impl<O: Offer> Server<O> {
    /// Tells a client with a session about one resource, until it unsubscribes or goes.
    pub(super) async fn begin_telling(
        &self,
        address: String,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.offer.check_followed(&address)?;
        // Whoever may not read it may not hear of it either.
        self.unless_cancelled(&context, self.offer.read(&address)).await?;
        let mut changes = self.offer.follow(&address).await?;
        let (peer, told) = (context.peer, address.clone());
        self.subscriptions.add(&address, async move {
            while changes.next().await.is_some() {
                let changed = ResourceUpdatedNotificationParam::new(told.clone());
                if let Err(error) = peer.notify_resource_updated(changed).await {
                    tracing::debug!(%error, "a client cannot be told of a change");
                    return;
                }
            }
        })
    }

    /// Tells a client without a session about all that it asked for, for as long as it listens.
    pub(super) async fn tell_all(&self, context: &SubscriptionContext) {
        let addresses: Vec<String> =
            context.accepted().resource_subscriptions.iter().flatten().cloned().collect();
        let followed = addresses.into_iter().map(|address| self.tell(context.sink(), address));
        // Even with nothing left to follow it ends only when the client says so.
        let all = async {
            join_all(followed).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = context.cancelled() => {}
            () = self.closed.cancelled() => {}
            () = all => {}
        }
    }

    /// One of them.
    async fn tell(&self, sink: &SubscriptionSink, address: String) {
        let Ok(mut changes) = self.offer.follow(&address).await else { return };
        while changes.next().await.is_some() {
            if let Err(error) = sink.notify_resource_updated(&address).await {
                tracing::debug!(%error, "a client cannot be told of a change");
                return;
            }
        }
    }
}
