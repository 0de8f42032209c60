//! Access to the vault, the notes on the host. They belong to no workspace and to no session.

use agentiso_vault::{Settings, Vault};

use super::Session;
use crate::error::OpError;

impl Session {
    /// Location and settings of the vault, if it is enabled.
    pub fn vault_settings(&self) -> Result<Settings, OpError> {
        let config = &self.shared().config.vault;
        if !config.enabled {
            return Err(OpError::VaultDisabled);
        }
        Ok(Settings {
            path: config.path.clone(),
            extensions: config.extensions.clone(),
            exclude_dirs: config.exclude_dirs.clone(),
        })
    }

    /// Runs work on the vault. It reads and writes files, so it runs on a blocking thread.
    pub async fn vault<T, E>(
        &self,
        work: impl FnOnce(&Vault) -> Result<T, E> + Send + 'static,
    ) -> Result<T, OpError>
    where
        T: Send + 'static,
        E: Into<OpError> + Send + 'static,
    {
        let _call = self.begin_call();
        self.refuse_when_closing()?;
        let vault = Vault::new(self.vault_settings()?);
        match tokio::task::spawn_blocking(move || work(&vault)).await {
            Ok(done) => done.map_err(Into::into),
            Err(stopped) => match stopped.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(OpError::ShuttingDown),
            },
        }
    }
}
