//! Leaves traces in a VM before its snapshot is taken, to be looked for afterwards.

use super::filesystem::MarkerFile;
use super::guest::Guest;
use super::identity::ObservedIdentity;
use super::verdict::Finding;
use super::witness::Witness;

/// The state of a VM just before its snapshot.
#[derive(Clone, Debug)]
pub struct Before {
    pub(super) marker: MarkerFile,
    pub(super) identity: ObservedIdentity,
    /// The processes that were started, if the snapshot includes memory.
    pub(super) witness: Option<Witness>,
}

impl Before {
    /// Writes a file and, with memory, starts processes.
    pub async fn leave(guest: Guest<'_>, with_memory: bool) -> Result<Self, Finding> {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            marker: MarkerFile::write(guest, &nonce).await?,
            identity: ObservedIdentity::read(guest).await?,
            witness: match with_memory {
                true => Some(Witness::start(guest, &nonce).await?),
                false => None,
            },
        })
    }

    /// Checks that the VM continued as if no snapshot had been taken and no fork been made.
    pub async fn is_undisturbed(&self, guest: Guest<'_>) -> Result<(), Finding> {
        ObservedIdentity::read(guest).await?.is_unchanged_from(&self.identity)?;
        if let Some(witness) = &self.witness {
            witness.undisturbed(guest).await?;
        }
        Ok(())
    }

    /// Writes again after the snapshot, which must not contain any of it.
    pub async fn change(&self, guest: Guest<'_>) -> Result<(), Finding> {
        self.marker.change(guest).await
    }

    /// Ends the processes that were started for it.
    pub(super) async fn stop(&self, guest: Guest<'_>) -> Result<(), Finding> {
        match &self.witness {
            Some(witness) => witness.stop(guest).await,
            None => Ok(()),
        }
    }
}
