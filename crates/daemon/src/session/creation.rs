//! A workspace that is being created for a client, which may give up at any moment.

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Session;
use crate::error::OpError;
use crate::info::WorkspaceInfo;
use crate::registry::Workspace;
use crate::runner::{self, Delivery, Seed};
use crate::vms::Progress;

/// A creation under way. Dropping it undoes the workspace.
pub(super) struct Creation {
    workspace: Workspace,
    cancel_on_drop: DropGuard,
    delivery: oneshot::Receiver<Result<Delivery, OpError>>,
}

/// A finished workspace that no client has accepted yet. Dropping it undoes the workspace as well.
pub(super) struct FinishedCreation {
    workspace: Workspace,
    cancel_on_drop: DropGuard,
    delivery: Delivery,
}

pub(super) struct Delivered {
    pub(super) boot_time_ms: u64,
    pub(super) warning: Option<String>,
}

impl Session {
    /// Starts the runner of a reserved workspace. From here on the runner owns the reservation: it delivers the
    /// workspace or undoes it, whatever happens to the client.
    pub(super) fn begin_creation(&self, reserved: Workspace, seed: Seed, progress: &Progress) -> Creation {
        let cancel = CancellationToken::new();
        let cancel_on_drop = cancel.clone().drop_guard();
        let (deliver, delivery) = oneshot::channel();
        runner::spawn_create(self.shared(), &reserved, seed, progress.clone(), cancel, deliver);
        Creation { workspace: reserved, cancel_on_drop, delivery }
    }
}

impl Creation {
    pub(super) async fn finished(self) -> Result<FinishedCreation, OpError> {
        let Self { workspace, cancel_on_drop, delivery } = self;
        let delivery = delivery.await.unwrap_or(Err(OpError::ShuttingDown))?;
        Ok(FinishedCreation { workspace, cancel_on_drop, delivery })
    }
}

impl FinishedCreation {
    pub(super) fn accept(self, session: &Session) -> Result<(WorkspaceInfo, Delivered), OpError> {
        let info = session.info_of(&self.workspace)?;
        self.cancel_on_drop.disarm();
        let Delivery { boot_time_ms, warning, accepted } = self.delivery;
        accepted.send(()).map_err(|()| OpError::ShuttingDown)?;
        Ok((info, Delivered { boot_time_ms, warning }))
    }
}
