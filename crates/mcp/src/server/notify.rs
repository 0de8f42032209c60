//! Notifies clients of changed resources, in the form of either era.

use futures::StreamExt;
use futures::future::join_all;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};

use super::Server;
use crate::offer::Offer;

impl<O: Offer> Server<O> {
    /// Notifies a client with a session about one resource, until it unsubscribes or disconnects.
    pub(super) async fn start_notifying(
        &self,
        address: String,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.offer.check_followed(&address)?;
        // A client that may not read a resource may not learn of its changes either.
        self.unless_cancelled(&context, self.offer.read(&address)).await?;
        let mut changes = self.offer.follow(&address).await?;
        let (peer, told) = (context.peer, address.clone());
        self.subscriptions.add(&address, async move {
            while changes.next().await.is_some() {
                let changed = ResourceUpdatedNotificationParam::new(told.clone());
                if let Err(error) = peer.notify_resource_updated(changed).await {
                    tracing::debug!(%error, "cannot notify a client of a change");
                    return;
                }
            }
        })
    }

    /// Notifies a stateless client about all resources that it asked for, for as long as it listens.
    pub(super) async fn notify_all(&self, context: &SubscriptionContext) {
        let addresses: Vec<String> =
            context.accepted().resource_subscriptions.iter().flatten().cloned().collect();
        let followed = addresses.into_iter().map(|address| self.notify_one(context.sink(), address));
        // Even if nothing is left to follow, it ends only when the client ends it.
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

    /// Notifies a stateless client about one resource.
    async fn notify_one(&self, sink: &SubscriptionSink, address: String) {
        let Ok(mut changes) = self.offer.follow(&address).await else { return };
        while changes.next().await.is_some() {
            if let Err(error) = sink.notify_resource_updated(&address).await {
                tracing::debug!(%error, "cannot notify a client of a change");
                return;
            }
        }
    }
}
