//! A name service for guests, as the backends use it.

use futures::future::BoxFuture;

use super::{Neighbours, Reply, Resolver};
use crate::policy::{Guard, Transport};

/// Answers queries for names, under the guest's policy.
pub trait Names: std::fmt::Debug + Send + Sync {
    /// The answer to send; `None` if there is none.
    fn answer<'a>(
        &'a self,
        guard: &'a Guard,
        neighbours: &'a dyn Neighbours,
        query: &'a [u8],
        transport: Transport,
    ) -> BoxFuture<'a, Option<Reply>>;
}

impl Names for Resolver {
    fn answer<'a>(
        &'a self,
        guard: &'a Guard,
        neighbours: &'a dyn Neighbours,
        query: &'a [u8],
        transport: Transport,
    ) -> BoxFuture<'a, Option<Reply>> {
        Box::pin(Self::answer(self, guard, neighbours, query, transport))
    }
}
