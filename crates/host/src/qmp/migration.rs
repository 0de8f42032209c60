//! Saving a machine to a file, and loading it: QEMU's migration, with RAM in the stream or left where it is.
//!
//! The end of a migration is an event. The state is asked for once after subscribing, and whenever events were
//! missed, so that an event that came too early is not waited for.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::client::{QmpClient, QmpError};
use crate::qemu::argv::AGENT_CHARDEV;

/// The default limit would stretch even device state, some 100 KB, over several rounds.
const UNLIMITED_BANDWIDTH: u64 = 1 << 40;

/// How long a running machine may be stopped for the last pages, in milliseconds, and for how long that is tried.
/// A guest that writes faster than we copy is stopped for longer in the end rather than copied for ever.
const PAUSES: [(u64, Duration); 4] = [
    (20, Duration::from_secs(4)),
    (60, Duration::from_secs(4)),
    (300, Duration::from_secs(6)),
    (20_000, Duration::from_secs(30)),
];

/// Where a machine's RAM is while its state is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ram {
    /// In the template's own file, which both sides map.
    Beside,
    /// In the stream with everything else.
    Inside,
}

impl QmpClient {
    /// Writes the device state of a stopped machine whose RAM is a shared file.
    pub async fn save_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        self.prepare_migration(Ram::Beside).await?;
        let parameters = json!({"max-bandwidth": UNLIMITED_BANDWIDTH});
        self.execute("migrate-set-parameters", Some(parameters)).await?;
        self.migrate("migrate", file, deadline).await
    }

    /// Loads device state into a QEMU that was started with `-incoming defer`. The machine stays paused.
    pub async fn load_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        self.load(file, Ram::Beside, deadline).await
    }

    /// Loads a whole machine into a QEMU that was started with `-incoming defer`. The machine stays paused.
    pub async fn load_machine(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        self.load(file, Ram::Inside, deadline).await
    }

    async fn load(&self, file: &Path, ram: Ram, deadline: Duration) -> Result<(), QmpError> {
        self.prepare_migration(ram).await?;
        // QEMU would tell the network that the machine moved here, under the address of the one it was saved from.
        let parameters = json!({"announce-rounds": 0});
        self.execute("migrate-set-parameters", Some(parameters)).await?;
        self.migrate("migrate-incoming", file, deadline).await
    }

    /// Writes a whole machine while it runs; it is stopped for the last pages only and stands still when this
    /// returns. On an error it runs on.
    pub async fn save_running(&self, file: &Path) -> Result<(), QmpError> {
        self.prepare_migration(Ram::Inside).await?;
        self.allow_pause(PAUSES[0].0).await?;
        let longest = PAUSES.iter().map(|(_, tried)| *tried).sum();
        let saving = self.migrate("migrate", file, longest);
        let insisting = async {
            for pair in PAUSES.windows(2) {
                tokio::time::sleep(pair[0].1).await;
                // One that has just ended refuses, which is as well.
                if self.allow_pause(pair[1].0).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await
        };
        let saved = tokio::select! {
            biased;
            saved = saving => saved,
            () = insisting => return Err(QmpError::Closed),
        };
        if let Err(error) = saved {
            self.give_up_saving().await;
            return Err(error);
        }
        self.settled().await
    }

    async fn allow_pause(&self, milliseconds: u64) -> Result<(), QmpError> {
        let parameters = json!({"max-bandwidth": UNLIMITED_BANDWIDTH, "downtime-limit": milliseconds});
        self.execute("migrate-set-parameters", Some(parameters)).await.map(drop)
    }

    /// Makes sure that a machine whose copy failed goes on.
    async fn give_up_saving(&self) {
        let cancelled = self.execute("migrate_cancel", None).await;
        let resumed = match self.settled().await {
            Ok(()) => self.resume().await,
            Err(error) => Err(error),
        };
        if let Err(error) = cancelled.map(drop).and(resumed) {
            tracing::warn!(%error, "a machine whose copy was given up may stand still");
        }
    }

    /// Lets a machine go on that stands still because whoever copied it, or paused it, is gone. One that runs is left
    /// alone.
    pub async fn wake(&self) -> Result<(), QmpError> {
        let migration = self.migration_state().await?.0;
        if matches!(migration.as_deref(), Some("setup" | "active" | "device" | "pre-switchover")) {
            self.execute("migrate_cancel", None).await?;
        }
        self.settled().await?;
        let status = self.execute("query-status", None).await?;
        match status.get("running").and_then(Value::as_bool) {
            Some(true) => Ok(()),
            Some(false) | None => self.resume().await,
        }
    }

    /// Waits until QEMU has noticed that nobody is connected to the agent's socket.
    pub async fn agent_hung_up(&self) -> Result<(), QmpError> {
        /// It is told by the kernel, and has no event for it.
        const SOON: Duration = Duration::from_millis(2);
        const ATTEMPTS: u32 = 5000;
        for _ in 0..ATTEMPTS {
            let devices = self.execute("query-chardev", None).await?;
            let agent =
                devices.as_array().into_iter().flatten().find(|device| device["label"] == AGENT_CHARDEV);
            let path = agent.and_then(|agent| agent["filename"].as_str());
            let path = path.ok_or_else(|| QmpError::Unexpected { command: "query-chardev".to_owned() })?;
            if path.starts_with("disconnected") {
                return Ok(());
            }
            tokio::time::sleep(SOON).await;
        }
        Err(QmpError::NoAnswer { command: "the end of a connection".to_owned() })
    }

    /// Lets a stopped machine run. One that runs is left alone.
    pub async fn resume(&self) -> Result<(), QmpError> {
        self.execute("cont", None).await.map(drop)
    }

    /// Waits until a migration that was announced as finished really is.
    async fn settled(&self) -> Result<(), QmpError> {
        /// QEMU has a few lines of its own left to run, and no event for their end.
        const SOON: Duration = Duration::from_millis(1);
        const ATTEMPTS: u32 = 5000;
        for _ in 0..ATTEMPTS {
            let status = self.execute("query-status", None).await?;
            if status.get("status").and_then(Value::as_str) != Some("finish-migrate") {
                return Ok(());
            }
            tokio::time::sleep(SOON).await;
        }
        Err(QmpError::MigrationDeadline { seconds: (SOON * ATTEMPTS).as_secs() })
    }

    async fn prepare_migration(&self, ram: Ram) -> Result<(), QmpError> {
        let set = |name: &str, state: bool| json!({"capability": name, "state": state});
        // `events`: the end is told, not polled for.
        let capabilities = [set("x-ignore-shared", ram == Ram::Beside), set("events", true)];
        self.execute("migrate-set-capabilities", Some(json!({"capabilities": capabilities}))).await?;
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
