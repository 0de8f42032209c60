//! What is left in a machine before its snapshot is taken, to be looked for afterwards.

use super::filesystem::Left;
use super::guest::Guest;
use super::portrait::Portrait;
use super::verdict::Finding;
use super::witness::Witness;

/// A machine as it was just before its snapshot.
#[derive(Clone, Debug)]
pub struct Before {
    pub(super) left: Left,
    pub(super) portrait: Portrait,
    /// Where the snapshot is to have the machine's memory in it.
    pub(super) witness: Option<Witness>,
}

impl Before {
    /// Writes a file and, with memory, starts processes.
    pub async fn leave(guest: Guest<'_>, with_memory: bool) -> Result<Self, Finding> {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            left: Left::leave(guest, &nonce).await?,
            portrait: Portrait::take(guest).await?,
            witness: match with_memory {
                true => Some(Witness::plant(guest, &nonce).await?),
                false => None,
            },
        })
    }

    /// Whether the machine went on as if no snapshot had been taken, nor a fork been made.
    pub async fn is_undisturbed(&self, guest: Guest<'_>) -> Result<(), Finding> {
        Portrait::take(guest).await?.is_still(&self.portrait)?;
        if let Some(witness) = &self.witness {
            witness.undisturbed(guest).await?;
        }
        Ok(())
    }

    /// Goes on writing after the snapshot; none of that may be seen in it.
    pub async fn change(&self, guest: Guest<'_>) -> Result<(), Finding> {
        self.left.change(guest).await
    }

    /// Ends the processes that were started for it.
    pub(super) async fn dismiss(&self, guest: Guest<'_>) -> Result<(), Finding> {
        match &self.witness {
            Some(witness) => witness.dismiss(guest).await,
            None => Ok(()),
        }
    }
}
