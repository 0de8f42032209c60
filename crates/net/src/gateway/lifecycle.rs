//! The VMs that use one attachment, one after the other: no task or connection of one reaches the next.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;

use super::vm::Vm;
use crate::flow::task_group::TaskGroup;

impl Vm {
    /// Starts a task that ends, wherever it is, with the running VM.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(get(&self.vm_tasks).wrap(work));
    }

    /// Starts a task that ends, wherever it is, when the VM is detached.
    pub(crate) fn keep(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.ended.clone().run_until_cancelled_owned(work).map(drop));
    }

    /// QEMU has connected anew; the tasks of its connection before are cancelled.
    pub(crate) fn reconnect(&self) -> TaskGroup {
        let next = TaskGroup::within(&self.ended);
        put(&self.connection_tasks, next.clone()).cancel();
        next
    }

    /// Whether no VM runs on this attachment, so that nothing answers.
    pub(crate) fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::SeqCst)
    }

    pub(crate) fn occupy(&self) {
        self.vacant.store(false, Ordering::SeqCst);
    }

    /// The VM has ended: its connections are cut, and their other ends are reset. When this returns, nothing is left
    /// for the next VM.
    pub(crate) async fn vacate(self: Arc<Self>) {
        self.vacant.store(true, Ordering::SeqCst);
        // The socket first, so that frames still in flight open nothing more.
        put(&self.connection_tasks, TaskGroup::within(&self.ended)).end().await;
        put(&self.vm_tasks, TaskGroup::within(&self.ended)).end().await;
        self.switch.end_connections_of(&self);
        self.frames.lock().await.clear();
    }
}

fn get(group: &Mutex<TaskGroup>) -> TaskGroup {
    group.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn put(group: &Mutex<TaskGroup>, next: TaskGroup) -> TaskGroup {
    std::mem::replace(&mut *group.lock().unwrap_or_else(PoisonError::into_inner), next)
}
