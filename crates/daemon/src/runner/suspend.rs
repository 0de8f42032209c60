//! Suspends a workspace whose guest stands still because its writes find no room. It loses nothing and continues by
//! itself when there is room.

use super::task::Runner;
use crate::registry::Status;

impl Runner {
    pub(super) fn is_suspended(&self) -> bool {
        matches!(self.status(), Status::Suspended { .. })
    }

    pub(super) async fn suspend(&mut self, reason: String) {
        let Status::Running { vm } = self.status() else { return };
        tracing::warn!(workspace = %self.name, reason, "its guest is paused");
        self.shared.set_status(&self.id, Status::Suspended { vm, reason });
        self.shared.save_or_warn("a guest was paused").await;
    }

    pub(super) async fn try_to_resume(&mut self) {
        let (Some(vm), Status::Suspended { vm: record, .. }) = (self.vm(), self.status()) else {
            return;
        };
        let status = match vm.go_on().await {
            Ok(None) => {
                tracing::info!(workspace = %self.name, "its guest resumed");
                Status::Running { vm: record }
            }
            Ok(Some(reason)) => Status::Suspended { vm: record, reason },
            Err(failure) => {
                tracing::warn!(workspace = %self.name, %failure, "cannot resume its guest");
                return;
            }
        };
        if status != self.status() {
            self.shared.set_status(&self.id, status);
            self.shared.save_or_warn("a guest resumed, or is paused for another reason").await;
        }
    }
}
