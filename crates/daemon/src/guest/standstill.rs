//! A guest that stands still because its disk has no room answers nothing. Whoever waits for it is told the reason
//! instead, unless it goes on within a moment.

use std::time::Duration;

use agentiso_core::lifecycle::Refusal;
use agentiso_core::names::WorkspaceName;
use futures::FutureExt;

use crate::error::OpError;
use crate::machines::Machine;
use crate::runner::LOOK_AGAIN;

/// How long a guest may stand still before its callers are told. A call that is answered with an error ends its command,
/// so one attempt to go on comes first.
const PATIENCE: Duration = Duration::from_secs(3);

const _: () = assert!(PATIENCE.as_millis() > LOOK_AGAIN.as_millis());

/// Resolves when the guest has stood still for longer than a moment, with the reason.
pub(crate) async fn standstill(machine: &dyn Machine) -> String {
    loop {
        machine.stalled().await;
        tokio::time::sleep(PATIENCE).await;
        if let Some(reason) = machine.stalled().now_or_never() {
            return reason;
        }
    }
}

/// The same error that later calls get.
pub(crate) fn suspended(name: &WorkspaceName, reason: String) -> OpError {
    OpError::WrongState { name: name.clone(), refusal: Refusal::Suspended, stop_reason: Some(reason) }
}
