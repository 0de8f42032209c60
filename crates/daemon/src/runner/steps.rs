//! Start, stop and destroy. Each writes what it is about to do to the ledger before it does it, so that a crash
//! in between can be finished or undone.

use std::sync::Arc;
use std::time::Duration;

use super::handle::Live;
use super::task::{Runner, take_seat};
use crate::error::OpError;
use crate::fault;
use crate::machines::{Booted, MachineRecord, Progress, Rung, SpawnHook};
use crate::registry::Status;

/// How long a guest may take to power off before it is ended. Clients give a stop 60 seconds in all.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(20);

/// The ways in which a machine comes up, each with the steps at which a test can end the daemon.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rise {
    Create,
    Start,
    Restore,
    Fork,
    Import,
}

impl Rise {
    fn spawned(self) -> &'static str {
        match self {
            Self::Create => "create.spawned",
            Self::Start => "start.spawned",
            Self::Restore => "restore.spawned",
            Self::Fork => "fork.spawned",
            Self::Import => "import.spawned",
        }
    }

    fn recorded(self) -> &'static str {
        match self {
            Self::Create => "create.recorded",
            Self::Start => "start.recorded",
            Self::Restore => "restore.recorded",
            Self::Fork => "fork.recorded",
            Self::Import => "import.recorded",
        }
    }
}

impl Runner {
    pub(super) async fn start(&mut self, progress: Progress) -> Result<(), OpError> {
        self.settle_volume().await?;
        let before = self.status();
        let memory = self.shared.machines.host_memory();
        // Under one lock, so that starts at the same time cannot promise the same memory twice.
        self.shared.change(|registry| {
            registry.admit_memory(self.spec.resources.memory_mb, memory)?;
            registry.update(&self.id, |workspace| workspace.status = Status::Starting { machine: None });
            Ok::<_, OpError>(())
        })?;
        if let Err(error) = self.shared.save().await {
            self.shared.set_status(&self.id, before);
            return Err(OpError::Ledger(error));
        }
        fault::point("start.ledgered");
        self.seat_anew().await;
        let hook = self.spawn_hook(Rise::Start, |machine| Status::Starting { machine: Some(machine) });
        let booted = match self.shared.machines.start(&self.spec, hook, &progress).await {
            Ok(booted) => booted,
            Err(failure) => {
                let error = OpError::boot(&self.name, failure);
                self.fall_back_to_stopped(format!("it could not be started: {error}")).await;
                return Err(error);
            }
        };
        fault::point("start.booted");
        if let Err(error) = self.come_up(booted).await {
            self.fall_back_to_stopped(format!("it could not be started: {error}")).await;
            return Err(error);
        }
        Ok(())
    }

    /// The machine answers: publish it and save it as running.
    pub(super) async fn come_up(&mut self, booted: Booted) -> Result<(), OpError> {
        let Booted { machine, rung, boot_time, .. } = booted;
        self.shared.metrics.booted(boot_time);
        let record = machine.record();
        match rung {
            // It has run commands before it was handed over.
            Rung::Pool => {}
            Rung::Memory | Rung::ImageTemplate | Rung::BareTemplate | Rung::ColdBoot => {
                self.shared.first_turns.came_up(self.id);
            }
        }
        self.live.send_replace(Live::Up(machine));
        self.shared.change(|registry| {
            registry.update(&self.id, |workspace| {
                workspace.status = Status::Running { machine: record };
                workspace.rung = Some(rung);
            });
        });
        self.shared.save().await.map_err(OpError::Ledger)
    }

    pub(super) async fn fall_back_to_stopped(&mut self, reason: String) {
        let machine = self.status().machine().cloned();
        self.live.send_replace(Live::Down);
        self.shared.machines.halt(&self.spec, machine.as_ref()).await;
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason: Some(reason) });
        self.shared.save_or_warn("a machine did not come up").await;
    }

    /// No machine runs and one is about to: nothing of an earlier one is left at its seat, and what of the network could
    /// not be had is tried again.
    pub(super) async fn seat_anew(&self) {
        self.shared.network.vacate(&self.id).await;
        if let Some(workspace) = self.shared.workspace(&self.id) {
            take_seat(&self.shared, &workspace);
        }
    }

    pub(super) async fn stop(&mut self) -> Result<(), OpError> {
        let before = self.status();
        let machine = self.machine();
        // Admission saw it running; without a published machine, or one that was looked for in vain, it is between two
        // phases that exclude a stop.
        let record = match before.machine() {
            Some(record) if machine.is_some() || self.out_of_reach.is_some() => record.clone(),
            Some(_) | None => return Err(self.not_at_hand()),
        };
        self.shared.set_status(&self.id, Status::Stopping { machine: record.clone() });
        if let Err(error) = self.shared.save().await {
            self.shared.set_status(&self.id, before);
            return Err(OpError::Ledger(error));
        }
        fault::point("stop.ledgered");
        self.live.send_replace(Live::Down);
        match machine {
            Some(machine) => {
                let reason = machine.shutdown(STOP_GRACE).await;
                tracing::info!(workspace = %self.name, %reason, "stopped");
            }
            // Its guest cannot be asked.
            None => {
                self.shared.machines.halt(&self.spec, Some(&record)).await;
                self.note_reach(None);
                tracing::warn!(workspace = %self.name, "stopped: it could not be reached, and was ended");
            }
        }
        fault::point("stop.halted");
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason: None });
        self.shared.save_or_warn("a workspace was stopped").await;
        Ok(())
    }

    /// Ends the machine and removes everything. On an error the workspace stays, stopped, and can be destroyed
    /// again.
    pub(super) async fn destroy(&mut self) -> Result<(), OpError> {
        let machine = self.status().machine().cloned();
        self.shared.set_status(&self.id, Status::Destroying { machine: machine.clone() });
        // A destroy gives space back, so a full disk must not prevent it: without the note a crash from here
        // on leaves a workspace whose process is gone, and its destruction can be repeated.
        self.shared.save_or_warn("a workspace is being destroyed").await;
        fault::point("destroy.ledgered");
        let live = self.live.send_replace(Live::Down);
        if let Live::Up(machine) = live {
            machine.kill().await;
        }
        self.shared.machines.halt(&self.spec, machine.as_ref()).await;
        fault::point("destroy.halted");
        self.shared.network.vacate(&self.id).await;
        self.shared.network.leave_files(&self.id).await;
        if let Err(source) = self.shared.machines.erase(&self.spec).await {
            let reason = format!("destroying it failed: {source}");
            self.shared.set_status(&self.id, Status::Stopped { reason: Some(reason) });
            self.shared.save_or_warn("a workspace could not be destroyed").await;
            return Err(OpError::Erase { name: self.name.clone(), source });
        }
        fault::point("destroy.erased");
        self.shared.forget(&self.id);
        self.shared.save_or_warn("a workspace was destroyed").await;
        Ok(())
    }

    pub(super) fn status(&self) -> Status {
        // Only this task removes the entry, and it ends when it has.
        let gone = Status::Stopped { reason: None };
        self.shared.workspace(&self.id).map_or(gone, |workspace| workspace.status)
    }

    /// Puts a machine's process into the ledger as soon as it exists.
    pub(super) fn spawn_hook(
        &self,
        rise: Rise,
        status: impl Fn(MachineRecord) -> Status + Send + Sync + 'static,
    ) -> SpawnHook {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        Arc::new(move |record| {
            let (shared, status) = (Arc::clone(&shared), status(record));
            Box::pin(async move {
                fault::point(rise.spawned());
                shared.network.occupy(&id);
                shared.change(|registry| {
                    registry.update(&id, |workspace| {
                        // A machine that goes back to a snapshot is started on a disk that was switched to it.
                        if let Status::Restoring { snapshot, .. } = &status {
                            workspace.snapshots.descend_from(Some(*snapshot));
                        }
                        workspace.status = status;
                    });
                });
                shared.save().await?;
                fault::point(rise.recorded());
                Ok(())
            })
        })
    }
}
