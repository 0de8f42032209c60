//! Messages that a program in the VM asked for, until it has received them.
//!
//! They stay in the inbox and in its file until then, so that neither a program that disconnects nor a daemon that is
//! killed loses them, and asking alone writes nothing to disk.

use std::sync::Arc;

use agentiso_core::team::Message;
use uuid::Uuid;

use crate::mail::{MailStoreError, Slot};
use crate::shared::Shared;

/// Lent messages, which nobody else receives while this exists. If it is dropped before they were delivered, they can
/// be received again.
#[derive(Debug)]
pub(super) struct LentMessages {
    slot: Arc<Slot>,
    ids: Vec<Uuid>,
}

impl LentMessages {
    /// Lends all messages of a member that are not lent already, oldest first.
    pub(super) async fn from(slot: Arc<Slot>) -> Result<(Self, Vec<Message>), MailStoreError> {
        let ours = Arc::clone(&slot);
        // Built inside the closure, so that the messages are returned if this future is dropped.
        let lend = move |inbox: &mut crate::mail::Inbox| {
            let messages = inbox.lend()?;
            let ids = messages.iter().map(|message| message.message_id).collect();
            Ok((Self { slot: ours, ids }, messages))
        };
        slot.run(lend).await
    }

    /// The program has received the messages: removes them. Returns when that is on disk, and it happens even if the
    /// future is dropped.
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
                Err(error) => {
                    tracing::error!(%error, "cannot remove delivered messages; they will be delivered again")
                }
            }
            slot.take_back(&ids);
        });
        // Joining fails only when the runtime ends, and then nobody waits.
        let _ = removed.await;
    }
}

impl Drop for LentMessages {
    fn drop(&mut self) {
        self.slot.take_back(&self.ids);
    }
}
