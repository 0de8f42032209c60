//! Saving a machine's device state to a file, and loading it: QEMU's migration, with RAM left where it is.
//!
//! The end of a migration is an event. The state is asked for once after subscribing, and whenever events were
//! missed, so that an event that came too early is not waited for.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::client::{QmpClient, QmpError};

/// Device state has some 100 KB. The default limit would stretch even that over several rounds.
const UNLIMITED_BANDWIDTH: u64 = 1 << 40;

impl QmpClient {
    /// Writes the device state of a stopped machine whose RAM is a shared file.
    pub async fn save_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        self.prepare_migration().await?;
        let parameters = json!({"max-bandwidth": UNLIMITED_BANDWIDTH});
        self.execute("migrate-set-parameters", Some(parameters)).await?;
        self.migrate("migrate", file, deadline).await
    }

    /// Loads device state into a QEMU that was started with `-incoming defer`. The machine stays paused.
    pub async fn load_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        self.prepare_migration().await?;
        // QEMU would tell the network that the machine moved here, under the address of the one it was saved from.
        let parameters = json!({"announce-rounds": 0});
        self.execute("migrate-set-parameters", Some(parameters)).await?;
        self.migrate("migrate-incoming", file, deadline).await
    }

    async fn prepare_migration(&self) -> Result<(), QmpError> {
        let on = |name: &str| json!({"capability": name, "state": true});
        // `x-ignore-shared`: RAM is in the template's file already. `events`: the end is told, not polled for.
        let capabilities = json!({"capabilities": [on("x-ignore-shared"), on("events")]});
        self.execute("migrate-set-capabilities", Some(capabilities)).await?;
        Ok(())
    }

    async fn migrate(&self, command: &str, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        let mut events = self.events();
        // The structured form instead of `file:<path>`: a comma in the path would end the latter.
        let address = json!({"transport": "file", "filename": file.to_string_lossy(), "offset": 0});
        let channels = json!({"channels": [{"channel-type": "main", "addr": address}]});
        let work = async {
            self.execute(command, Some(channels)).await?;
            loop {
                let status = match events.recv().await {
                    Ok(event) => event.migration_status().map(str::to_owned),
                    Err(RecvError::Lagged(_)) => self.migration_state().await?.0,
                    Err(RecvError::Closed) => return Err(QmpError::Closed),
                };
                match status.as_deref() {
                    Some("completed") => return Ok(()),
                    Some("failed" | "cancelled") => return Err(self.migration_failure().await),
                    // Statuses on the way (setup, active, device, and what later versions add).
                    Some(_) | None => {}
                }
            }
        };
        let closed = self.closed();
        tokio::select! {
            // An answer that is there counts even if QEMU went right after it.
            biased;
            ended = tokio::time::timeout(deadline, work) => {
                ended.unwrap_or(Err(QmpError::MigrationDeadline { seconds: deadline.as_secs() }))
            }
            () = closed => Err(QmpError::Closed),
        }
    }

    async fn migration_state(&self) -> Result<(Option<String>, Option<String>), QmpError> {
        let state = self.execute("query-migrate", None).await?;
        let text = |key: &str| state.get(key).and_then(Value::as_str).map(str::to_owned);
        Ok((text("status"), text("error-desc")))
    }

    async fn migration_failure(&self) -> QmpError {
        // A QEMU whose incoming migration failed exits; its reason is then in its stderr.
        let (status, reason) = self.migration_state().await.unwrap_or((None, None));
        QmpError::Migration {
            status: status.unwrap_or_else(|| "failed".to_owned()),
            reason: reason.unwrap_or_else(|| "QEMU gave no reason on its control socket".to_owned()),
        }
    }
}
