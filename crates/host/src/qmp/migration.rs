//! Saves a VM to a file and loads it, by QEMU's migration, with the RAM in that file or in its own.
//!
//! A running VM is copied while it runs, and pages that it writes meanwhile are copied again. If QEMU supports it
//! (`mapped-ram`, since 9.0), every page has a fixed place in the file, so that the file never outgrows the VM's RAM
//! however often a page is copied. An older QEMU appends, and is stopped before it has written twice the VM's RAM. A
//! guest that writes faster than it is copied is stopped in the end, for at most [`LONGEST_PAUSE`]; if that is not
//! enough, the copy fails and is given up.
//!
//! The end of a migration is an event. The state is queried once after subscribing, and whenever events were missed, so
//! that an early event is not waited for.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use agentiso_sys::files::FileError;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::client::{QmpClient, QmpError};
use super::fdset::STATE;
use super::wire::Event;
use crate::qemu::argv::{AGENT_CHARDEV, set_path};

/// QEMU's default limit would stretch even device state, some 100 KB, over several rounds.
const UNLIMITED_BANDWIDTH: u64 = 1 << 40;

/// Pauses, in milliseconds, that QEMU may make in a running VM for the last pages, and how long each value is tried. A
/// guest that still has not converged after the last one is stopped by us.
const PAUSES: [(u64, Duration); 3] =
    [(20, Duration::from_secs(4)), (60, Duration::from_secs(4)), (300, Duration::from_secs(6))];

/// The longest time for which a VM is stopped to copy its memory. While QEMU itself stops the VM, QEMU accepts no
/// commands; if we stop it, the copy can still be given up after this time.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// The time that QEMU may need to report an end that has already happened.
const END_MARGIN: Duration = Duration::from_secs(10);

/// The capability that gives every page a fixed place in the file.
const MAPPED_RAM: &str = "mapped-ram";

/// The place of a VM's RAM while its state is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ram {
    /// In the template's own file, which both QEMUs map.
    Beside,
    /// In the same file as everything else.
    Inside,
}

/// The layout of pages in a file that contains RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each at a fixed place: a page that is copied again replaces its older copy.
    Placed,
    /// One after the other: a page that is copied again makes the file longer.
    Appended,
}

/// The progress of a copy of a running VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyProgress {
    sent_bytes: u64,
    /// Pages that were written meanwhile and have to be copied again.
    left_bytes: u64,
}

impl CopyProgress {
    /// Whether an appended file has to be finished at once. At most the VM's RAM is left to copy, so the file stays
    /// below twice that.
    fn must_end(self, vm_bytes: u64) -> bool {
        self.sent_bytes.saturating_add(self.left_bytes) > vm_bytes
    }
}

impl QmpClient {
    /// Writes the device state of a stopped VM whose RAM is a shared file.
    pub(crate) async fn save_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        // The VM may have been loaded from a file with placed pages.
        self.choose_layout(Layout::Appended).await?;
        self.prepare_migration(Ram::Beside).await?;
        let parameters = json!({"max-bandwidth": UNLIMITED_BANDWIDTH});
        self.execute("migrate-set-parameters", Some(parameters)).await?;
        self.migrate("migrate", file, deadline).await
    }

    /// Loads device state into a QEMU that was started with `-incoming defer`. The VM stays paused.
    pub(crate) async fn load_devices(&self, file: &Path, deadline: Duration) -> Result<(), QmpError> {
        self.load(file, Ram::Beside, deadline).await
    }

    /// Loads a whole VM, as [`QmpClient::save_running`] wrote it, into a QEMU that was started with `-incoming defer`.
    /// The VM stays paused.
    pub(crate) async fn load_vm(
        &self,
        file: &Path,
        layout: Layout,
        deadline: Duration,
    ) -> Result<(), QmpError> {
        if self.choose_layout(layout).await? != layout {
            let reason = "this QEMU does not support the memory layout of the file".to_owned();
            return Err(QmpError::Migration { status: "not started".to_owned(), reason });
        }
        self.load(file, Ram::Inside, deadline).await
    }

    async fn load(&self, file: &Path, ram: Ram, deadline: Duration) -> Result<(), QmpError> {
        self.prepare_migration(ram).await?;
        // QEMU would announce to the network that the VM moved here, with the address of the VM that was saved.
        let parameters = json!({"announce-rounds": 0});
        self.execute("migrate-set-parameters", Some(parameters)).await?;
        self.migrate("migrate-incoming", file, deadline).await
    }

    /// Writes a whole VM while it runs. It is stopped for the last pages only and is stopped when this returns. After
    /// an error it may run, be stopped, or still be copied: [`QmpClient::wake`] makes it go on.
    pub(crate) async fn save_running(&self, file: &Path, vm_bytes: u64) -> Result<Layout, QmpError> {
        self.prepare_migration(Ram::Inside).await?;
        let layout = self.choose_layout(Layout::Placed).await?;
        self.allow_pause(PAUSES[0].0).await?;
        let tried: Duration = PAUSES.iter().map(|(_, tried)| *tried).sum();
        let insisting = self.force_end(layout, vm_bytes, self.events());
        let saving = self.migrate("migrate", file, tried + LONGEST_PAUSE + END_MARGIN);
        let saved = tokio::select! {
            biased;
            saved = saving => saved,
            error = insisting => Err(error),
        };
        saved?;
        self.settled().await.map(|()| layout)
    }

    /// Makes a copy finish: allows longer pauses, then stops the VM. Returns the reason if that did not help either.
    async fn force_end(&self, layout: Layout, vm_bytes: u64, events: broadcast::Receiver<Event>) -> QmpError {
        let longer_pauses = async {
            for pair in PAUSES.windows(2) {
                tokio::time::sleep(pair[0].1).await;
                // A migration that has just ended refuses this, which is fine.
                if self.allow_pause(pair[1].0).await.is_err() {
                    break;
                }
            }
            tokio::time::sleep(PAUSES[PAUSES.len() - 1].1).await;
        };
        let too_long = async {
            match layout {
                Layout::Placed => std::future::pending().await,
                Layout::Appended => self.appended_too_much(vm_bytes, events).await,
            }
        };
        tokio::select! {
            () = longer_pauses => {}
            () = too_long => {}
        }
        // The migration continues while the VM is stopped, and therefore finishes.
        if let Err(error) = self.execute("stop", None).await {
            return error;
        }
        tokio::time::sleep(LONGEST_PAUSE).await;
        QmpError::PauseLimit { seconds: LONGEST_PAUSE.as_secs() }
    }

    /// Resolves when an appended file must not become much longer. QEMU reports the start of each pass.
    async fn appended_too_much(&self, vm_bytes: u64, mut events: broadcast::Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(event) if event.is_migration_pass() => {}
                Err(RecvError::Lagged(_)) => {}
                Ok(_) => continue,
                // The task that waits for the end sees this too.
                Err(RecvError::Closed) => return std::future::pending().await,
            }
            if self.copied().await.is_ok_and(|copied| copied.must_end(vm_bytes)) {
                return;
            }
        }
    }

    async fn copied(&self) -> Result<CopyProgress, QmpError> {
        let state = self.execute("query-migrate", None).await?;
        let bytes = |key: &str| state["ram"][key].as_u64().unwrap_or(0);
        Ok(CopyProgress { sent_bytes: bytes("transferred"), left_bytes: bytes("remaining") })
    }

    /// Chooses the layout of pages in a file that contains RAM. Returns the layout that this QEMU uses from now on: an
    /// older one can only append.
    async fn choose_layout(&self, layout: Layout) -> Result<Layout, QmpError> {
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

    /// Lets a VM go on that is stopped because the task that copied or paused it failed or is gone. A running VM is
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

    /// Waits until QEMU has noticed that the agent's socket has no client.
    pub async fn agent_hung_up(&self) -> Result<(), QmpError> {
        /// QEMU learns it from the kernel and sends no event for it.
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
        Err(QmpError::NoAnswer { command: "the end of the agent's connection".to_owned() })
    }

    /// Lets a stopped VM run. A running VM is left alone.
    pub async fn resume(&self) -> Result<(), QmpError> {
        self.execute("cont", None).await.map(drop)
    }

    /// Waits until a migration that was reported as finished really is.
    async fn settled(&self) -> Result<(), QmpError> {
        /// QEMU has some code left to run after its event, and sends no other event.
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
        // `events`: the end is reported and need not be polled.
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
            // A QEMU that is gone holds no descriptors, and the result of the migration is more important.
            Err(error) if migrated.is_ok() => Err(error),
            Ok(()) | Err(_) => migrated,
        }
    }

    async fn migrate_through(&self, command: &str, set: u64, deadline: Duration) -> Result<(), QmpError> {
        let mut events = self.events();
        // The structured form instead of `file:<path>`: it has no special characters.
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
                    // Intermediate statuses (setup, active, device, and those of later versions).
                    Some(_) | None => {}
                }
            }
        };
        let closed = self.closed();
        tokio::select! {
            // An answer that was received counts even if QEMU exited right after it.
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
        // A QEMU whose incoming migration failed exits, and its reason is then in its stderr.
        let (status, reason) = self.migration_state().await.unwrap_or((None, None));
        QmpError::Migration {
            status: status.unwrap_or_else(|| "failed".to_owned()),
            reason: reason.unwrap_or_else(|| "QEMU gave no reason on its control socket".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CopyProgress;

    const RAM: u64 = 512 << 20;

    #[test]
    fn appended_copy_ends_below_twice_the_ram() {
        let copied = |sent_bytes, left_bytes| CopyProgress { sent_bytes, left_bytes };
        assert!(!copied(0, RAM).must_end(RAM), "the first copy of every page");
        assert!(!copied(RAM / 4, RAM / 2).must_end(RAM));
        assert!(copied(RAM, 1).must_end(RAM));
        assert!(copied(u64::MAX, 1).must_end(RAM));
        // The longest file: one more pass that was just allowed, and then all of the RAM while the VM is stopped.
        let (mut sent, left) = (0, RAM / 3);
        while !copied(sent, left).must_end(RAM) {
            sent += left;
        }
        assert!(sent + RAM <= 2 * RAM);
    }
}
