//! Saving a machine to a file, and loading it: QEMU's migration, with RAM in the file or left where it is.
//!
//! A running machine is copied while it runs, and pages that it writes meanwhile are copied again. Every page has a
//! place of its own in the file where QEMU can do that (`mapped-ram`, since 9.0), so that the file never outgrows the
//! machine's RAM however often a page is copied. An older QEMU appends, and is stopped before it has written twice the
//! machine's RAM. A guest that writes faster than it is copied is stopped in the end, for at most [`LONGEST_PAUSE`]; if
//! that is not enough, the copy fails and is given up.
//!
//! The end of a migration is an event. The state is asked for once after subscribing, and whenever events were
//! missed, so that an event that came too early is not waited for.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::client::{QmpClient, QmpError};
use super::given::STATE;
use super::wire::Event;
use crate::files::FileError;
use crate::qemu::argv::{AGENT_CHARDEV, set_path};

/// The default limit would stretch even device state, some 100 KB, over several rounds.
const UNLIMITED_BANDWIDTH: u64 = 1 << 40;

/// How long QEMU may stop a running machine for the last pages, in milliseconds, and for how long that is tried. A guest
/// that has not come to rest after the last of these is stopped by us.
const PAUSES: [(u64, Duration); 3] =
    [(20, Duration::from_secs(4)), (60, Duration::from_secs(4)), (300, Duration::from_secs(6))];

/// The longest time for which a machine is stopped to copy its memory. While QEMU itself stops it, nothing else can be
/// asked of QEMU; stopped by us, the copy can still be given up when this has passed.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// What QEMU may need to tell of an end that is already there.
const END_MARGIN: Duration = Duration::from_secs(10);

/// Every page has a place of its own in the file.
const MAPPED_RAM: &str = "mapped-ram";

/// Where a machine's RAM is while its state is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ram {
    /// In the template's own file, which both sides map.
    Beside,
    /// In the file with everything else.
    Inside,
}

/// How pages lie in a file that has RAM inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each in a place of its own: a page that is copied again replaces its older copy.
    Placed,
    /// One after the other: a page that is copied again makes the file longer.
    Appended,
}

/// How far a copy of a running machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    sent_bytes: u64,
    /// What was written meanwhile and has to be copied again.
    left_bytes: u64,
}

impl Copied {
    /// Whether a file that is appended to has to come to its end now: what is left is at most the machine's RAM, so it
    /// stays below twice that.
    fn must_end(self, machine_bytes: u64) -> bool {
        self.sent_bytes.saturating_add(self.left_bytes) > machine_bytes
    }
}

impl QmpClient {
    /// Writes the device state of a stopped machine whose RAM is a shared file.
    pub async fn save_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        // The machine may have been loaded from a file in which pages were placed.
        self.lay_out(Layout::Appended).await?;
        self.prepare_migration(Ram::Beside).await?;
        let parameters = json!({"max-bandwidth": UNLIMITED_BANDWIDTH});
        self.execute("migrate-set-parameters", Some(parameters)).await?;
        self.migrate("migrate", file, deadline).await
    }

    /// Loads device state into a QEMU that was started with `-incoming defer`. The machine stays paused.
    pub async fn load_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        self.load(file, Ram::Beside, deadline).await
    }

    /// Loads a whole machine, as [`QmpClient::save_running`] wrote it, into a QEMU that was started with `-incoming
    /// defer`. The machine stays paused.
    pub async fn load_machine(
        &self,
        file: &Path,
        layout: Layout,
        deadline: Duration,
    ) -> Result<(), QmpError> {
        if self.lay_out(layout).await? != layout {
            let reason = "this QEMU cannot read how its pages are placed".to_owned();
            return Err(QmpError::Migration { status: "not begun".to_owned(), reason });
        }
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
    /// returns. After an error it may run, stand still, or be copied on: [`QmpClient::wake`] makes it go on.
    pub async fn save_running(&self, file: &Path, machine_bytes: u64) -> Result<Layout, QmpError> {
        self.prepare_migration(Ram::Inside).await?;
        let layout = self.lay_out(Layout::Placed).await?;
        self.allow_pause(PAUSES[0].0).await?;
        let tried: Duration = PAUSES.iter().map(|(_, tried)| *tried).sum();
        let insisting = self.insist(layout, machine_bytes, self.events());
        let saving = self.migrate("migrate", file, tried + LONGEST_PAUSE + END_MARGIN);
        let saved = tokio::select! {
            biased;
            saved = saving => saved,
            error = insisting => Err(error),
        };
        saved?;
        self.settled().await.map(|()| layout)
    }

    /// Sees to it that a copy comes to an end: allows longer pauses, then stops the machine. Returns the reason when that
    /// did not help either.
    async fn insist(
        &self,
        layout: Layout,
        machine_bytes: u64,
        events: broadcast::Receiver<Event>,
    ) -> QmpError {
        let longer_pauses = async {
            for pair in PAUSES.windows(2) {
                tokio::time::sleep(pair[0].1).await;
                // One that has just ended refuses, which is as well.
                if self.allow_pause(pair[1].0).await.is_err() {
                    break;
                }
            }
            tokio::time::sleep(PAUSES[PAUSES.len() - 1].1).await;
        };
        let too_long = async {
            match layout {
                Layout::Placed => std::future::pending().await,
                Layout::Appended => self.appended_too_much(machine_bytes, events).await,
            }
        };
        tokio::select! {
            () = longer_pauses => {}
            () = too_long => {}
        }
        // The migration goes on while the machine stands still, and now comes to its end.
        if let Err(error) = self.execute("stop", None).await {
            return error;
        }
        tokio::time::sleep(LONGEST_PAUSE).await;
        QmpError::PauseLimit { seconds: LONGEST_PAUSE.as_secs() }
    }

    /// Resolves when a file that is appended to must not become much longer. QEMU tells when it begins to copy again.
    async fn appended_too_much(&self, machine_bytes: u64, mut events: broadcast::Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(event) if event.is_migration_pass() => {}
                Err(RecvError::Lagged(_)) => {}
                Ok(_) => continue,
                // Those who wait for the end are told as well.
                Err(RecvError::Closed) => return std::future::pending().await,
            }
            if self.copied().await.is_ok_and(|copied| copied.must_end(machine_bytes)) {
                return;
            }
        }
    }

    async fn copied(&self) -> Result<Copied, QmpError> {
        let state = self.execute("query-migrate", None).await?;
        let bytes = |key: &str| state["ram"][key].as_u64().unwrap_or(0);
        Ok(Copied { sent_bytes: bytes("transferred"), left_bytes: bytes("remaining") })
    }

    /// Chooses how pages lie in a file with RAM inside. Returns the layout that this QEMU uses from now on: an older one
    /// can only append.
    async fn lay_out(&self, layout: Layout) -> Result<Layout, QmpError> {
        let known = self.execute("query-migrate-capabilities", None).await?;
        let mut known = known.as_array().into_iter().flatten();
        if !known.any(|capability| capability["capability"] == MAPPED_RAM) {
            return Ok(Layout::Appended);
        }
        let capability = json!({"capability": MAPPED_RAM, "state": layout == Layout::Placed});
        self.execute("migrate-set-capabilities", Some(json!({"capabilities": [capability]}))).await?;
        Ok(layout)
    }

    async fn allow_pause(&self, milliseconds: u64) -> Result<(), QmpError> {
        let parameters = json!({"max-bandwidth": UNLIMITED_BANDWIDTH, "downtime-limit": milliseconds});
        self.execute("migrate-set-parameters", Some(parameters)).await.map(drop)
    }

    /// Lets a machine go on that stands still because whoever copied it, or paused it, failed or is gone. One that runs is
    /// left alone.
    pub async fn wake(&self) -> Result<(), QmpError> {
        let migration = self.migration_state().await?.0;
        if matches!(migration.as_deref(), Some("setup" | "active" | "device" | "pre-switchover")) {
            self.execute("migrate_cancel", None).await?;
        }
        self.settled().await?;
        let status = self.execute("query-status", None).await?;
        match status.get("running").and_then(Value::as_bool) {
            Some(true) => {}
            Some(false) | None => self.resume().await?,
        }
        self.take_states_back().await;
        Ok(())
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
        let mut options = File::options();
        match command {
            "migrate" => options.write(true).create(true).truncate(true).mode(0o600),
            _ => options.read(true),
        };
        let opened = options.open(file).map_err(FileError::at("open", file))?;
        let given = self.give(opened, None, STATE).await?;
        let migrated = self.migrate_through(command, given.set, deadline).await;
        match self.take_back(given).await {
            // A QEMU that is gone has nothing any more, and what became of the migration says more.
            Err(error) if migrated.is_ok() => Err(error),
            Ok(()) | Err(_) => migrated,
        }
    }

    async fn migrate_through(&self, command: &str, set: u64, deadline: Duration) -> Result<(), QmpError> {
        let mut events = self.events();
        // The structured form instead of `file:<path>`: it has no characters with a meaning of their own.
        let address = json!({"transport": "file", "filename": set_path(set), "offset": 0});
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

#[cfg(test)]
mod tests {
    use super::Copied;

    const RAM: u64 = 512 << 20;

    #[test]
    fn appended_copy_ends_below_twice_the_ram() {
        let copied = |sent_bytes, left_bytes| Copied { sent_bytes, left_bytes };
        assert!(!copied(0, RAM).must_end(RAM), "the first copy of every page");
        assert!(!copied(RAM / 4, RAM / 2).must_end(RAM));
        assert!(copied(RAM, 1).must_end(RAM));
        assert!(copied(u64::MAX, 1).must_end(RAM));
        // The longest file: a step that was just allowed, and then all of the RAM while the machine stands still.
        let (mut sent, left) = (0, RAM / 3);
        while !copied(sent, left).must_end(RAM) {
            sent += left;
        }
        assert!(sent + RAM <= 2 * RAM);
    }
}
