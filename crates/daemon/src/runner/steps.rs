//! Start, stop and destroy. Each step is written to the ledger before it is done, so that the next daemon can
//! finish or undo it after a crash.

use std::sync::Arc;
use std::time::Duration;

use super::task::{Runner, attach_network};
use crate::error::OpError;
use crate::fault;
use crate::handle::Live;
use crate::registry::Status;
use crate::vms::{Booted, OnSpawn, Progress, Rung, Unrecorded, VmRecord};

/// The time that a guest may take to power off before it is killed. Clients allow 60 seconds for a whole stop.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(20);

/// The ways in which a VM boots, each with the steps at which a test can end the daemon.
#[derive(Clone, Copy, Debug)]
pub(super) enum BootKind {
    Create,
    Start,
    Restore,
    Fork,
    Import,
}

impl BootKind {
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
        let memory = self.shared.vms.host_memory();
        // Under one lock, so that starts at the same time cannot promise the same memory twice.
        self.shared.change(|registry| {
            registry.admit_memory(self.spec.resources.memory_mb, memory)?;
            registry.update(&self.id, |workspace| workspace.status = Status::Starting { vm: None });
            Ok::<_, OpError>(())
        })?;
        if let Err(error) = self.shared.save().await {
            self.shared.set_status(&self.id, before);
            return Err(OpError::Ledger(error));
        }
        fault::point("start.ledgered");
        self.renew_attachment().await;
        let hook = self.spawn_hook(BootKind::Start, |vm| Status::Starting { vm: Some(vm) });
        let started = match self.shared.vms.start(&self.spec, hook, &progress).await {
            Ok(booted) => {
                fault::point("start.booted");
                self.come_up(booted).await
            }
            Err(failure) => Err(OpError::boot(&self.name, failure)),
        };
        if let Err(error) = &started {
            self.fall_back_to_stopped(format!("it could not be started: {error}")).await;
        }
        started
    }

    /// Publishes a VM that answers and saves it as running.
    pub(super) async fn come_up(&mut self, booted: Booted) -> Result<(), OpError> {
        let Booted { vm, rung, boot_time, .. } = booted;
        self.shared.metrics.booted(boot_time);
        let record = vm.record();
        match rung {
            // It already ran commands before it was handed over.
            Rung::Pool => {}
            Rung::Memory | Rung::ImageTemplate | Rung::BareTemplate | Rung::ColdBoot => {
                self.shared.first_turns.came_up(self.id);
            }
        }
        self.live.send_replace(Live::Up(vm));
        self.shared.update(&self.id, |workspace| {
            workspace.status = Status::Running { vm: record };
            workspace.rung = Some(rung);
        });
        self.shared.save().await.map_err(OpError::Ledger)
    }

    pub(super) async fn fall_back_to_stopped(&mut self, reason: String) {
        let vm = self.status().vm().cloned();
        self.live.send_replace(Live::Down);
        self.shared.vms.halt(&self.spec, vm.as_ref()).await;
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason: Some(reason) });
        self.shared.save_or_warn("a VM did not start").await;
    }

    /// Prepares the network for a new VM: removes what an earlier one left at its attachment, and retries what
    /// could not be set up.
    pub(super) async fn renew_attachment(&self) {
        self.shared.network.vacate(&self.id).await;
        if let Some(workspace) = self.shared.workspace(&self.id) {
            attach_network(&self.shared, &workspace);
        }
    }

    pub(super) async fn stop(&mut self) -> Result<(), OpError> {
        let before = self.status();
        // A phase that admits a stop has a VM.
        let Some(record) = before.vm().cloned() else { return Err(self.attaching()) };
        self.shared.set_status(&self.id, Status::Stopping { vm: record.clone() });
        if let Err(error) = self.shared.save().await {
            self.shared.set_status(&self.id, before);
            return Err(OpError::Ledger(error));
        }
        fault::point("stop.ledgered");
        match self.live.send_replace(Live::Down) {
            Live::Up(vm) => {
                let reason = vm.shutdown(STOP_GRACE).await;
                tracing::info!(workspace = %self.name, %reason, "stopped");
            }
            // Its guest cannot be asked to power off.
            Live::OutOfReach { .. } | Live::Attaching | Live::Down => {
                self.shared.vms.halt(&self.spec, Some(&record)).await;
                self.forget_unreachable();
                tracing::warn!(workspace = %self.name, "stopped: its VM could not be reached and was killed");
            }
        }
        fault::point("stop.halted");
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason: None });
        self.shared.save_or_warn("a workspace was stopped").await;
        Ok(())
    }

    /// Ends the VM and removes everything. On an error the workspace stays, stopped, and can be destroyed again.
    pub(super) async fn destroy(&mut self) -> Result<(), OpError> {
        let vm = self.status().vm().cloned();
        self.shared.set_status(&self.id, Status::Destroying { vm: vm.clone() });
        // A destroy frees space, so a full disk must not prevent it: without the note, a crash from here on leaves
        // a workspace whose process is gone, and the destroy can be repeated.
        self.shared.save_or_warn("a workspace is being destroyed").await;
        fault::point("destroy.ledgered");
        let live = self.live.send_replace(Live::Down);
        if let Live::Up(vm) = live {
            vm.kill().await;
        }
        self.shared.vms.halt(&self.spec, vm.as_ref()).await;
        fault::point("destroy.halted");
        self.shared.network.vacate(&self.id).await;
        self.shared.network.leave_files(&self.id).await;
        if let Err(source) = self.shared.vms.erase(&self.spec).await {
            let reason = format!("destroying it failed: {source}");
            self.forget_unreachable();
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
        // Only this task removes the entry, and then it ends.
        let gone = Status::Stopped { reason: None };
        self.shared.workspace(&self.id).map_or(gone, |workspace| workspace.status)
    }

    /// Writes the process of a VM to the ledger as soon as it exists.
    pub(super) fn spawn_hook(
        &self,
        kind: BootKind,
        status: impl Fn(VmRecord) -> Status + Send + Sync + 'static,
    ) -> OnSpawn {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        OnSpawn::new(move |record| {
            let (shared, status) = (Arc::clone(&shared), status(record));
            Box::pin(async move {
                fault::point(kind.spawned());
                shared.network.occupy(&id);
                shared.update(&id, |workspace| {
                    // A VM that is restored is started on a disk that was already switched to the snapshot.
                    if let Status::Restoring { snapshot, .. } = &status {
                        workspace.snapshots.descend_from(Some(*snapshot));
                    }
                    workspace.status = status;
                });
                shared.save().await.map_err(|error| Unrecorded(error.into()))?;
                fault::point(kind.recorded());
                Ok(())
            })
        })
    }
}
