//! Messages on their way to a program, until it has them.
//!
//! They stay in the inbox and in its file meanwhile, so that neither a program that goes away nor a daemon that is
//! killed loses them, and asking alone writes nothing to disk.

use std::sync::Arc;

use agentiso_core::team::Message;
use uuid::Uuid;

use crate::mail::{MailStoreError, Slot};
use crate::shared::Shared;

/// Nobody else is given them while this is there. Dropped before they were delivered, they can be had again.
#[derive(Debug)]
pub(super) struct Lent {
    slot: Arc<Slot>,
    ids: Vec<Uuid>,
}

impl Lent {
    /// All messages of a member that are not on their way already, the oldest first.
    pub(super) async fn from(slot: Arc<Slot>) -> Result<(Self, Vec<Message>), MailStoreError> {
        let ours = Arc::clone(&slot);
        // Made where they are lent: if nobody waits for it any more, they are taken back.
        let lend = move |inbox: &mut crate::mail::Inbox| {
            let messages = inbox.lend()?;
            let ids = messages.iter().map(|message| message.message_id).collect();
            Ok((Self { slot: ours, ids }, messages))
        };
        slot.run(lend).await
    }

    /// Whoever asked has them. Returns when that is on disk; it gets there also if nobody waits for it.
    pub(super) async fn delivered(mut self, shared: &Shared) {
        let ids = std::mem::take(&mut self.ids);
        if ids.is_empty() {
            return;
        }
        let slot = Arc::clone(&self.slot);
        let removed = shared.tasks.spawn(async move {
            let gone = ids.clone();
            match slot.run(move |inbox| inbox.remove(&gone)).await {
                Ok(()) | Err(MailStoreError::Closed) => {}
                Err(error) => tracing::error!(%error, "delivered messages stay, and are given once more"),
            }
            slot.take_back(&ids);
        });
        // It fails only with the runtime, and then nobody waits.
        let _ = removed.await;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.slot.take_back(&self.ids);
    }
}
