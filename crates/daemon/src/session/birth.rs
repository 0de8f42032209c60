//! A workspace that is being made for a caller who may give up at any moment.

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Session;
use crate::error::OpError;
use crate::info::WorkspaceInfo;
use crate::machines::Progress;
use crate::registry::Workspace;
use crate::runner::{self, Delivery, Seed};

/// Dropping it undoes the workspace.
pub(super) struct Birth {
    workspace: Workspace,
    cancel_on_drop: DropGuard,
    delivery: oneshot::Receiver<Result<Delivery, OpError>>,
}

/// A finished workspace that nobody has taken yet. Dropping it undoes the workspace as well.
pub(super) struct Born {
    workspace: Workspace,
    cancel_on_drop: DropGuard,
    delivery: Delivery,
}

pub(super) struct Delivered {
    pub(super) boot_time_ms: u64,
    pub(super) warning: Option<String>,
}

impl Session {
    /// From here on the runner owns the reservation: it delivers or undoes it, whatever becomes of us.
    pub(super) fn bear(&self, reserved: Workspace, seed: Seed, progress: &Progress) -> Birth {
        let cancel = CancellationToken::new();
        let cancel_on_drop = cancel.clone().drop_guard();
        let (deliver, delivery) = oneshot::channel();
        runner::spawn_create(self.shared(), &reserved, seed, progress.clone(), cancel, deliver);
        Birth { workspace: reserved, cancel_on_drop, delivery }
    }
}

impl Birth {
    pub(super) async fn born(self) -> Result<Born, OpError> {
        let Self { workspace, cancel_on_drop, delivery } = self;
        let delivery = delivery.await.unwrap_or(Err(OpError::ShuttingDown))?;
        Ok(Born { workspace, cancel_on_drop, delivery })
    }
}

impl Born {
    pub(super) fn accept(self, session: &Session) -> Result<(WorkspaceInfo, Delivered), OpError> {
        let info = session.info_of(&self.workspace)?;
        self.cancel_on_drop.disarm();
        let Delivery { boot_time_ms, warning, accepted } = self.delivery;
        accepted.send(()).map_err(|()| OpError::ShuttingDown)?;
        Ok((info, Delivered { boot_time_ms, warning }))
    }
}
