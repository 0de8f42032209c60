//! A running QEMU as this crate sees it.

use std::sync::Arc;
use std::time::Duration;

use agentiso_host::ExitCause;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::agent::QemuAgent;
use crate::machines::{ExitReason, GuestAgent, Machine, MachineRecord};

#[derive(Debug)]
pub(super) struct QemuMachine {
    machine: agentiso_host::Machine,
}

impl QemuMachine {
    pub(super) fn new(machine: agentiso_host::Machine) -> Self {
        Self { machine }
    }
}

fn exit_reason(reason: &agentiso_host::ExitReason) -> ExitReason {
    let clean = match reason.cause {
        ExitCause::GuestShutdown | ExitCause::Quit => true,
        ExitCause::GuestReset
        | ExitCause::GuestPanic(_)
        | ExitCause::Signal(_)
        | ExitCause::Status(_)
        | ExitCause::Vanished => false,
    };
    ExitReason { clean, text: reason.to_string() }
}

impl Machine for QemuMachine {
    fn record(&self) -> MachineRecord {
        self.machine.record().clone()
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        Arc::new(QemuAgent::new(self.machine.clone()))
    }

    fn exited(&self) -> BoxFuture<'static, ExitReason> {
        let machine = self.machine.clone();
        async move { exit_reason(&machine.exited().await) }.boxed()
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ExitReason> {
        async move { exit_reason(&self.machine.shutdown(grace).await) }.boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        async move { drop(self.machine.kill().await) }.boxed()
    }
}
