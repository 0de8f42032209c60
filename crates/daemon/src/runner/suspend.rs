//! A guest whose writes find no room stands still, loses nothing, and goes on by itself when there is room.

use std::time::Duration;

use super::task::Runner;
use crate::registry::Status;

/// How often to look for room. A disk tells nobody when it has some again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl Runner {
    pub(super) fn is_suspended(&self) -> bool {
        matches!(self.status(), Status::Suspended { .. })
    }

    pub(super) async fn suspend(&mut self, reason: String) {
        let Status::Running { machine } = self.status() else { return };
        tracing::warn!(workspace = %self.name, reason, "its guest stands still");
        self.shared.set_status(&self.id, Status::Suspended { machine, reason });
        self.shared.save_or_warn("a guest stands still").await;
    }

    pub(super) async fn try_to_go_on(&mut self) {
        let (Some(machine), Status::Suspended { machine: record, .. }) = (self.machine(), self.status())
        else {
            return;
        };
        let status = match machine.go_on().await {
            Ok(None) => {
                tracing::info!(workspace = %self.name, "its guest goes on");
                Status::Running { machine: record }
            }
            Ok(Some(reason)) => Status::Suspended { machine: record, reason },
            Err(failure) => {
                tracing::warn!(workspace = %self.name, %failure, "its guest could not be made to go on");
                return;
            }
        };
        if status != self.status() {
            self.shared.set_status(&self.id, status);
            self.shared.save_or_warn("a guest goes on, or waits for something else").await;
        }
    }
}
