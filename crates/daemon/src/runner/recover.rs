//! Decides what happens to a workspace of the ledger when a daemon starts, and does it.

use std::sync::Arc;

use agentiso_core::ids::SnapshotId;

use super::task::{Existence, Runner, spawn_recovered};
use crate::handle::Live;
use crate::registry::{Lifetime, Listing, Status, Workspace};
use crate::shared::Shared;
use crate::vms::VmRecord;

/// The recovery that one entry of the ledger needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// It runs, or stands still: attach to its VM.
    Attach(VmRecord),
    /// Nothing runs and nothing should; the workspace gets this status.
    Settle(Status),
    /// A stop or start was interrupted: make sure that nothing runs, then mark it stopped.
    Halt { vm: Option<VmRecord>, reason: Option<String> },
    /// A restore was interrupted: make sure that nothing runs. The disk is in the state before or in that of the
    /// snapshot, and either can be used.
    Interrupted { vm: Option<VmRecord>, snapshot: SnapshotId },
    /// It was being created or destroyed, or existed for a call that ended with the daemon.
    Remove,
}

/// Decides from the ledger's status and whether the recorded process exists.
///
/// `found` is a process of the workspace that exists on the host, whatever the ledger says: a record may be older
/// than the VM, and a running VM must run on.
pub(crate) fn plan(
    status: &Status,
    lifetime: Lifetime,
    found: Option<&VmRecord>,
    is_alive: impl Fn(&VmRecord) -> bool,
) -> Recovery {
    match lifetime {
        Lifetime::OneCall => return Recovery::Remove,
        Lifetime::Lasting => {}
    }
    match (status, found) {
        (Status::Running { vm } | Status::Suspended { vm, .. }, _) if is_alive(vm) => {
            Recovery::Attach(vm.clone())
        }
        (Status::Running { .. } | Status::Suspended { .. } | Status::Stopped { .. }, Some(record)) => {
            Recovery::Attach(record.clone())
        }
        (Status::Running { .. } | Status::Suspended { .. }, None) => Recovery::Settle(Status::Stopped {
            reason: Some("its VM ended while no daemon was running".to_owned()),
        }),
        (Status::Stopping { vm }, _) => Recovery::Halt { vm: Some(vm.clone()), reason: None },
        (Status::Starting { vm }, _) => Recovery::Halt {
            vm: vm.clone(),
            reason: Some("the daemon ended while it was starting".to_owned()),
        },
        (Status::Restoring { snapshot, vm }, _) => {
            Recovery::Interrupted { vm: vm.clone(), snapshot: *snapshot }
        }
        (Status::Stopped { .. }, None) => Recovery::Settle(status.clone()),
        (Status::Creating { .. } | Status::Destroying { .. }, _) => Recovery::Remove,
    }
}

/// Decides the recovery of an entry, shows the result at once if it is certain, and lets a runner do the rest.
pub(crate) fn take_up(
    shared: &Arc<Shared>,
    workspace: &Workspace,
    found: Option<&VmRecord>,
    listing: Listing,
) {
    let recovery = plan(&workspace.status, workspace.lifetime, found, |record| shared.vms.is_alive(record));
    match &recovery {
        Recovery::Settle(status) => shared.set_status(&workspace.id, status.clone()),
        Recovery::Remove => {
            let vm = workspace.status.vm().cloned();
            shared.set_status(&workspace.id, Status::Destroying { vm });
        }
        Recovery::Attach(record) if workspace.status.vm() != Some(record) => {
            tracing::warn!(workspace = %workspace.name, pid = record.pid, "its VM is running, which the ledger did not record");
            shared.set_status(&workspace.id, Status::Running { vm: record.clone() });
        }
        Recovery::Attach(_) | Recovery::Halt { .. } | Recovery::Interrupted { .. } => {}
    }
    spawn_recovered(shared, workspace, recovery, listing);
}

impl Runner {
    pub(super) async fn recover(&mut self, recovery: Recovery) -> Existence {
        match recovery {
            Recovery::Settle(status) => {
                // Removes the sockets of a VM that ended unwatched, or a process that the ledger does not list.
                self.shared.vms.halt(&self.spec, None).await;
                self.settle_or_warn().await;
                self.shared.network.vacate(&self.id).await;
                self.shared.set_status(&self.id, status);
            }
            Recovery::Attach(record) => {
                let found = self.shared.vms.attach(&self.spec, &record).await;
                self.attached(&record, found).await;
            }
            Recovery::Halt { vm, reason } => {
                self.shared.vms.halt(&self.spec, vm.as_ref()).await;
                self.stopped(reason).await;
            }
            Recovery::Interrupted { vm, snapshot } => {
                self.shared.vms.halt(&self.spec, vm.as_ref()).await;
                let name = self.name_of(snapshot).map_or_else(|_| snapshot.to_string(), String::from);
                // Whether the disk had been switched is determined before the workspace is shown as stopped, and
                // saved together with that status: after another crash nothing would say that there was a restore.
                self.shared.set_status(&self.id, Status::Restoring { snapshot, vm: None });
                self.settle_or_warn().await;
                self.record_origin().await;
                self.stopped(Some(format!("restoring snapshot {name} was interrupted; restore it again")))
                    .await;
            }
            Recovery::Remove => match self.destroy().await {
                Ok(()) => {
                    tracing::info!(workspace = %self.name, "removed: it was unfinished or temporary");
                    return Existence::Gone;
                }
                Err(error) => {
                    tracing::error!(workspace = %self.name, %error, "cannot remove an unfinished or temporary workspace");
                }
            },
        }
        Existence::Exists
    }

    /// Settles the volume. A failure is repeated before the next step on it.
    pub(super) async fn settle_or_warn(&mut self) {
        if let Err(error) = self.settle_volume().await {
            tracing::error!(workspace = %self.name, %error, "cannot clean up its disk; will retry");
        }
    }

    /// Nothing runs: settles the volume and marks the workspace stopped.
    pub(super) async fn stopped(&mut self, reason: Option<String>) {
        self.live.send_replace(Live::Down);
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason });
        self.settle_or_warn().await;
        self.shared.save_or_warn("a workspace was recovered").await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> VmRecord {
        VmRecord { pid: 7, start_time: 1, boot_id: "b".to_owned() }
    }

    fn plan_lasting(status: &Status, is_alive: impl Fn(&VmRecord) -> bool) -> Recovery {
        plan(status, Lifetime::Lasting, None, is_alive)
    }

    #[test]
    fn vms_missing_from_the_ledger_are_attached() {
        let other = VmRecord { pid: 8, ..record() };
        for status in [Status::Running { vm: record() }, Status::Stopped { reason: None }] {
            let planned = plan(&status, Lifetime::Lasting, Some(&other), |_| false);
            assert_eq!(planned, Recovery::Attach(other.clone()));
        }
        let running = Status::Running { vm: record() };
        let planned = plan(&running, Lifetime::Lasting, Some(&other), |_| true);
        assert_eq!(planned, Recovery::Attach(record()), "a record that holds is the better one");
        let starting = Status::Starting { vm: None };
        let planned = plan(&starting, Lifetime::Lasting, Some(&other), |_| true);
        assert!(matches!(planned, Recovery::Halt { .. }), "a start that was cut short is undone");
    }

    #[test]
    fn one_call_workspaces_are_removed_in_any_status() {
        let (running, stopped) = (Status::Running { vm: record() }, Status::Stopped { reason: None });
        for status in [running, stopped] {
            assert_eq!(plan(&status, Lifetime::OneCall, None, |_| true), Recovery::Remove);
        }
    }

    #[test]
    fn running_workspace_is_attached_if_its_process_lives() {
        let running = Status::Running { vm: record() };
        assert_eq!(plan_lasting(&running, |_| true), Recovery::Attach(record()));
        let Recovery::Settle(Status::Stopped { reason: Some(_) }) = plan_lasting(&running, |_| false) else {
            panic!("a dead VM must be shown as stopped, with the reason");
        };
    }

    #[test]
    fn suspended_workspace_is_attached_like_a_running_one() {
        let suspended = Status::Suspended { vm: record(), reason: "no room".to_owned() };
        assert_eq!(plan_lasting(&suspended, |_| true), Recovery::Attach(record()));
        assert!(matches!(
            plan_lasting(&suspended, |_| false),
            Recovery::Settle(Status::Stopped { reason: Some(_) })
        ));
    }

    #[test]
    fn interrupted_restore_is_never_attached() {
        let snapshot = SnapshotId::random();
        for vm in [None, Some(record())] {
            let restoring = Status::Restoring { snapshot, vm: vm.clone() };
            assert_eq!(plan_lasting(&restoring, |_| true), Recovery::Interrupted { vm, snapshot });
        }
    }

    #[test]
    fn unfinished_creates_and_destroys_are_removed() {
        for alive in [true, false] {
            for vm in [None, Some(record())] {
                assert_eq!(plan_lasting(&Status::Creating { vm: vm.clone() }, |_| alive), Recovery::Remove);
                assert_eq!(plan_lasting(&Status::Destroying { vm }, |_| alive), Recovery::Remove);
            }
        }
    }

    #[test]
    fn interrupted_stop_is_finished_without_a_reason() {
        let stopping = Status::Stopping { vm: record() };
        assert_eq!(plan_lasting(&stopping, |_| true), Recovery::Halt { vm: Some(record()), reason: None });
    }
}
