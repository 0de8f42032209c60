//! One machine of the world.

use std::sync::Arc;
use std::time::Duration;

use agentiso_daemon::machines::{ExitReason, GuestAgent, Machine, MachineRecord};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::guest::FakeGuest;
use super::world::World;

#[derive(Debug)]
pub(crate) struct FakeMachine {
    pub(crate) world: Arc<World>,
    pub(crate) record: MachineRecord,
    pub(crate) exit: watch::Receiver<Option<String>>,
}

impl Machine for FakeMachine {
    fn record(&self) -> MachineRecord {
        self.record.clone()
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        Arc::new(FakeGuest { killed: Arc::clone(&self.world.killed_commands) })
    }

    fn exited(&self) -> BoxFuture<'static, ExitReason> {
        let mut exit = self.exit.clone();
        async move {
            let ended = exit.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            match ended {
                Some(text) => ExitReason { clean: false, text },
                None => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn shutdown(&self, _grace: Duration) -> BoxFuture<'_, ExitReason> {
        async move {
            let takes = *self.world.shutdown_takes.lock().unwrap();
            tokio::time::sleep(takes).await;
            self.world.kill(self.record.pid, "powered off");
            ExitReason { clean: true, text: "powered off".to_owned() }
        }
        .boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        async move { self.world.kill(self.record.pid, "killed") }.boxed()
    }
}
