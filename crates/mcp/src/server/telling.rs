//! Telling clients that resources changed, in the way of either era.

use futures::future::join_all;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};

use super::Server;
use crate::answer::Failure;
use crate::resources;
use crate::resources::follow::{self, Followed};

impl Server {
    /// Tells a client with a session about one resource, until it unsubscribes or goes.
    pub(super) async fn begin_telling(
        &self,
        address: String,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = follow::parse(&self.profile, &address)?;
        // Whoever may not read it may not hear of it either.
        let reading =
            async { resources::read(&self.session, &uri, &address).await.map_err(Failure::into_error) };
        self.unless_cancelled(&context, reading).await?;
        let Some(mut followed) = Followed::begin(&self.session, uri).await else { return Ok(()) };
        let (peer, told) = (context.peer, address.clone());
        self.subscriptions.add(&address, async move {
            loop {
                followed.changed().await;
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
        let Ok(uri) = follow::parse(&self.profile, &address) else { return };
        let Some(mut followed) = Followed::begin(&self.session, uri).await else { return };
        loop {
            followed.changed().await;
            if let Err(error) = sink.notify_resource_updated(&address).await {
                tracing::debug!(%error, "a client cannot be told of a change");
                return;
            }
        }
    }
}
