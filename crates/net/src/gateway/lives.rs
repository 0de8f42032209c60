//! The machines that have one seat, one after the other: what one of them began never meets the next.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;

use super::vm::Vm;
use crate::life::Life;

impl Vm {
    /// Starts a task that ends, wherever it is, with the machine that has the seat.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(get(&self.life).part(work));
    }

    /// Starts a task that ends, wherever it is, when the VM is detached.
    pub(crate) fn keep(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.ended.clone().run_until_cancelled_owned(work).map(drop));
    }

    /// Its card is connected anew; what served the connection before ends.
    pub(crate) fn plug(&self) -> Life {
        let next = Life::within(&self.ended);
        put(&self.cable, next.clone()).cancel();
        next
    }

    /// Whether no machine has the seat, so that nobody answers.
    pub(crate) fn is_vacant(&self) -> bool {
        self.vacant.load(Ordering::SeqCst)
    }

    pub(crate) fn occupy(&self) {
        self.vacant.store(false, Ordering::SeqCst);
    }

    /// The machine is gone: what it had open is cut, and everybody else at it is told. Nothing is left for the next one
    /// when this returns.
    pub(crate) async fn vacate(self: Arc<Self>) {
        self.vacant.store(true, Ordering::SeqCst);
        // First, so that nothing it said last opens anything more.
        put(&self.cable, Life::within(&self.ended)).end().await;
        put(&self.life, Life::within(&self.ended)).end().await;
        self.switch.part(&self);
        self.frames.lock().await.clear();
    }
}

fn get(life: &Mutex<Life>) -> Life {
    life.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn put(life: &Mutex<Life>, next: Life) -> Life {
    std::mem::replace(&mut *life.lock().unwrap_or_else(PoisonError::into_inner), next)
}
