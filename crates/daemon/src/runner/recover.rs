//! What becomes of a workspace that the ledger knows when a daemon starts.

use std::sync::Arc;

use agentiso_core::ids::SnapshotId;

use super::handle::Live;
use super::task::{Existence, Runner, spawn_recovered};
use crate::machines::MachineRecord;
use crate::registry::{Books, Lifetime, Status, Workspace};
use crate::shared::Shared;

/// What is to be done about one entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// It runs on, or stands still: find its machine again.
    Attach(MachineRecord),
    /// Nothing runs and nothing should; the status is what it will be shown as.
    Settle(Status),
    /// A stop or start was cut short: make sure that nothing runs, then the same.
    Halt { machine: Option<MachineRecord>, reason: Option<String> },
    /// It was going back to a snapshot: make sure that nothing runs. Its disk is as it was before or as in the
    /// snapshot, and either can be used.
    Interrupted { machine: Option<MachineRecord>, snapshot: SnapshotId },
    /// It was being made or destroyed, or was there for a call that ended with the daemon.
    Remove,
}

/// Decides from the ledger's status and whether the recorded process is there.
///
/// `found` is a process of the workspace that the host has, whatever the ledger says: a record may be older than the
/// machine, and what runs must go on.
pub(crate) fn plan(
    status: &Status,
    lifetime: Lifetime,
    found: Option<&MachineRecord>,
    is_alive: impl Fn(&MachineRecord) -> bool,
) -> Recovery {
    match lifetime {
        Lifetime::OneCall => return Recovery::Remove,
        Lifetime::Lasting => {}
    }
    match status {
        Status::Running { machine } | Status::Suspended { machine, .. } if is_alive(machine) => {
            Recovery::Attach(machine.clone())
        }
        Status::Running { .. } | Status::Suspended { .. } | Status::Stopped { .. } if found.is_some() => {
            found.map_or_else(|| Recovery::Settle(status.clone()), |record| Recovery::Attach(record.clone()))
        }
        Status::Running { .. } | Status::Suspended { .. } => Recovery::Settle(Status::Stopped {
            reason: Some("its machine ended while no daemon was running".to_owned()),
        }),
        Status::Stopping { machine } => Recovery::Halt { machine: Some(machine.clone()), reason: None },
        Status::Starting { machine } => Recovery::Halt {
            machine: machine.clone(),
            reason: Some("the daemon ended while it was starting".to_owned()),
        },
        Status::Restoring { snapshot, machine } => {
            Recovery::Interrupted { machine: machine.clone(), snapshot: *snapshot }
        }
        Status::Stopped { .. } => Recovery::Settle(status.clone()),
        Status::Creating { .. } | Status::Destroying { .. } => Recovery::Remove,
    }
}

/// Decides what becomes of an entry, makes it visible at once where it is certain, and lets a runner do the rest.
pub(crate) fn take_up(
    shared: &Arc<Shared>,
    workspace: &Workspace,
    found: Option<&MachineRecord>,
    books: Books,
) {
    let recovery =
        plan(&workspace.status, workspace.lifetime, found, |record| shared.machines.is_alive(record));
    match &recovery {
        Recovery::Settle(status) => shared.set_status(&workspace.id, status.clone()),
        Recovery::Remove => {
            let machine = workspace.status.machine().cloned();
            shared.set_status(&workspace.id, Status::Destroying { machine });
        }
        Recovery::Attach(record) if workspace.status.machine() != Some(record) => {
            tracing::warn!(workspace = %workspace.name, pid = record.pid, "its machine runs, and the ledger did not know");
            shared.set_status(&workspace.id, Status::Running { machine: record.clone() });
        }
        Recovery::Attach(_) | Recovery::Halt { .. } | Recovery::Interrupted { .. } => {}
    }
    spawn_recovered(shared, workspace, recovery, books);
}

impl Runner {
    pub(super) async fn recover(&mut self, recovery: Recovery) -> Existence {
        // Whatever the last daemon was doing with the volume was cut short.
        self.unsettled = true;
        match recovery {
            Recovery::Settle(status) => {
                // Sockets of a machine that ended unwatched, or a process that the ledger never learnt of.
                self.shared.machines.halt(&self.spec, None).await;
                self.settle_or_warn().await;
                self.shared.network.vacate(&self.id).await;
                self.shared.set_status(&self.id, status);
                Existence::Exists
            }
            Recovery::Attach(record) => {
                let found = self.shared.machines.attach(&self.spec, &record).await;
                self.attached(&record, found).await;
                Existence::Exists
            }
            Recovery::Halt { machine, reason } => {
                self.shared.machines.halt(&self.spec, machine.as_ref()).await;
                self.stopped(reason).await;
                Existence::Exists
            }
            Recovery::Interrupted { machine, snapshot } => {
                self.shared.machines.halt(&self.spec, machine.as_ref()).await;
                let name = self.name_of(snapshot).map_or_else(|_| snapshot.to_string(), String::from);
                // Whether the disk had been switched is known before anybody sees the workspace at rest, and is in the
                // ledger with it: another crash finds nothing that says there was a restore.
                self.shared.set_status(&self.id, Status::Restoring { snapshot, machine: None });
                self.settle_or_warn().await;
                self.note_origin().await;
                self.stopped(Some(format!("going back to snapshot {name} was cut short; restore it again")))
                    .await;
                Existence::Exists
            }
            Recovery::Remove => match self.destroy().await {
                Ok(()) => {
                    tracing::info!(workspace = %self.name, "removed: it was not finished, or not meant to last");
                    Existence::Gone
                }
                Err(error) => {
                    tracing::error!(workspace = %self.name, %error, "a leftover could not be removed");
                    Existence::Exists
                }
            },
        }
    }

    /// Puts the volume in order. A failure is tried again before the next step on it.
    pub(super) async fn settle_or_warn(&mut self) {
        if let Err(error) = self.settle_volume().await {
            tracing::error!(workspace = %self.name, %error, "its disk is not in order");
        }
    }

    /// Nothing runs: its volume is put in order and it is shown as stopped.
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

    fn record() -> MachineRecord {
        MachineRecord { pid: 7, start_time: 1, boot_id: "b".to_owned() }
    }

    fn plan_lasting(status: &Status, is_alive: impl Fn(&MachineRecord) -> bool) -> Recovery {
        plan(status, Lifetime::Lasting, None, is_alive)
    }

    #[test]
    fn machines_missing_from_the_ledger_are_attached() {
        let other = MachineRecord { pid: 8, ..record() };
        for status in [Status::Running { machine: record() }, Status::Stopped { reason: None }] {
            let planned = plan(&status, Lifetime::Lasting, Some(&other), |_| false);
            assert_eq!(planned, Recovery::Attach(other.clone()));
        }
        let running = Status::Running { machine: record() };
        let planned = plan(&running, Lifetime::Lasting, Some(&other), |_| true);
        assert_eq!(planned, Recovery::Attach(record()), "a record that holds is the better one");
        let starting = Status::Starting { machine: None };
        let planned = plan(&starting, Lifetime::Lasting, Some(&other), |_| true);
        assert!(matches!(planned, Recovery::Halt { .. }), "a start that was cut short is undone");
    }

    #[test]
    fn what_was_there_for_a_call_is_removed_whatever_it_does() {
        let (running, stopped) = (Status::Running { machine: record() }, Status::Stopped { reason: None });
        for status in [running, stopped] {
            assert_eq!(plan(&status, Lifetime::OneCall, None, |_| true), Recovery::Remove);
        }
    }

    #[test]
    fn only_a_running_workspace_whose_process_lives_is_attached() {
        let running = Status::Running { machine: record() };
        assert_eq!(plan_lasting(&running, |_| true), Recovery::Attach(record()));
        let Recovery::Settle(Status::Stopped { reason: Some(_) }) = plan_lasting(&running, |_| false) else {
            panic!("a dead machine must be shown as stopped, with the reason");
        };
    }

    #[test]
    fn a_workspace_that_stands_still_is_found_again_like_one_that_runs() {
        let suspended = Status::Suspended { machine: record(), reason: "no room".to_owned() };
        assert_eq!(plan_lasting(&suspended, |_| true), Recovery::Attach(record()));
        assert!(matches!(
            plan_lasting(&suspended, |_| false),
            Recovery::Settle(Status::Stopped { reason: Some(_) })
        ));
    }

    #[test]
    fn a_restore_that_was_cut_short_is_never_attached() {
        let snapshot = SnapshotId::random();
        for machine in [None, Some(record())] {
            let restoring = Status::Restoring { snapshot, machine: machine.clone() };
            assert_eq!(plan_lasting(&restoring, |_| true), Recovery::Interrupted { machine, snapshot });
        }
    }

    #[test]
    fn what_was_half_made_or_half_destroyed_is_removed_whether_its_process_lives_or_not() {
        for alive in [true, false] {
            for machine in [None, Some(record())] {
                assert_eq!(
                    plan_lasting(&Status::Creating { machine: machine.clone() }, |_| alive),
                    Recovery::Remove
                );
                assert_eq!(plan_lasting(&Status::Destroying { machine }, |_| alive), Recovery::Remove);
            }
        }
    }

    #[test]
    fn a_stop_that_was_asked_for_is_finished_without_a_reason() {
        let stopping = Status::Stopping { machine: record() };
        assert_eq!(
            plan_lasting(&stopping, |_| true),
            Recovery::Halt { machine: Some(record()), reason: None }
        );
    }
}
