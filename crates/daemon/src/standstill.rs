//! Detects a guest that stands still because its disk has no room and therefore answers nothing. Its callers get
//! the reason as an error, unless the guest continues within a moment.

use std::time::Duration;

use agentiso_core::lifecycle::Refusal;
use agentiso_core::names::WorkspaceName;
use futures::FutureExt;

use crate::error::OpError;
use crate::vms::Vm;

/// The interval between two checks for room. A disk sends no signal when it has room again.
pub(crate) const ROOM_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The time that a guest may stand still before its callers get an error. A call that is answered with an error
/// ends its command, so one attempt to continue comes first.
const STANDSTILL_GRACE: Duration = Duration::from_secs(3);

const _: () = assert!(STANDSTILL_GRACE.as_millis() > ROOM_CHECK_INTERVAL.as_millis());

/// Resolves with the reason when the guest has stood still for longer than a moment.
pub(crate) async fn standstill(vm: &dyn Vm) -> String {
    loop {
        vm.stalled().await;
        tokio::time::sleep(STANDSTILL_GRACE).await;
        if let Some(reason) = vm.stalled().now_or_never() {
            return reason;
        }
    }
}

/// The same error that later calls get.
pub(crate) fn suspended(name: &WorkspaceName, reason: String) -> OpError {
    OpError::WrongState { name: name.clone(), refusal: Refusal::Suspended, stop_reason: Some(reason) }
}
