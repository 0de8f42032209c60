//! The task that writes a log's files, so that recording never waits for a disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use super::FlowRecord;
use super::file::Files;
use super::recent::Part;

/// Records that may wait for the disk. Records beyond that stay in memory only.
const WAITING: usize = 4096;

/// The part of that queue that is reserved for refusals.
const FOR_REFUSALS: usize = 1024;

/// Time for which records are collected before they are written: waking the writer and a thread that may wait for a
/// disk costs more than opening the connection that a record is about.
const MOMENT: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum Order {
    Write(FlowRecord),
    Flush(oneshot::Sender<()>),
    End(oneshot::Sender<()>),
}

/// The writer's handle. Its task writes what is queued and ends when it is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
    /// Wakes the writer before [`MOMENT`] has passed, because a caller waits.
    urgent: Arc<Notify>,
}

impl Writer {
    /// Must be called within the runtime.
    pub(super) fn start(files: Files) -> Self {
        let (orders, waiting) = mpsc::channel(WAITING);
        let urgent = Arc::new(Notify::new());
        tokio::spawn(run(files, waiting, urgent.clone()));
        Self { orders, urgent }
    }

    pub(super) fn write(&self, record: FlowRecord) {
        if Part::of(&record) == Part::Flows && self.orders.capacity() <= FOR_REFUSALS {
            return;
        }
        // A disk that cannot keep up loses records, not flows.
        let _ = self.orders.try_send(Order::Write(record));
    }

    pub(super) async fn flush(&self) {
        self.ask(Order::Flush).await;
    }

    pub(super) async fn end(&self) {
        self.ask(Order::End).await;
    }

    async fn ask(&self, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let (done, heard) = oneshot::channel();
        // If the writer is not waiting at this instant, it finds the permit later.
        self.urgent.notify_one();
        if self.orders.send(order(done)).await.is_ok() {
            // An error means that the writer has ended, and it writes everything before it ends.
            let _ = heard.await;
        }
    }
}

async fn run(mut files: Files, mut waiting: mpsc::Receiver<Order>, urgent: Arc<Notify>) {
    let mut complained = false;
    while let Some(first) = waiting.recv().await {
        if matches!(first, Order::Write(_)) {
            // Records that arrive meanwhile wake nothing.
            let _ = tokio::time::timeout(MOMENT, urgent.notified()).await;
        }
        let (mut records, mut flushed, mut ended) = (Vec::new(), Vec::new(), None);
        let more = std::iter::from_fn(|| waiting.try_recv().ok()).take(WAITING);
        for order in std::iter::once(first).chain(more) {
            match order {
                Order::Write(record) => records.push(record),
                Order::Flush(done) => flushed.push(done),
                Order::End(done) => ended = Some(done),
            }
        }
        let written = tokio::task::spawn_blocking(move || {
            let written = files.append(records);
            (files, written)
        });
        let Ok((back, written)) = written.await else { return };
        files = back;
        if let Err(error) = written
            && !complained
        {
            // Once: a full disk stays full for a while.
            complained = true;
            tracing::warn!(%error, "cannot write a workspace's network log");
        }
        for done in flushed {
            let _ = done.send(());
        }
        if let Some(done) = ended {
            // Closed before the caller goes on to remove the directory.
            drop(files);
            let _ = done.send(());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::super::{FlowEvent, FlowLog};
    use super::*;
    use crate::policy::Transport;

    fn record(port: u16) -> FlowRecord {
        let to = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port);
        FlowRecord::now(FlowEvent::Closed, Transport::Udp, to)
    }

    #[tokio::test]
    async fn log_continues_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let log = FlowLog::kept_in(dir.path());
        (1..=600).for_each(|port| log.record(record(port)));
        log.flush().await;
        drop(log);
        let log = FlowLog::kept_in(dir.path());
        assert_eq!(log.tail(usize::MAX).len(), 600);
        log.record(record(601));
        assert_eq!(log.tail(1)[0].port, Some(601));
        log.flush().await;
        let ports: Vec<_> = FlowLog::kept_in(dir.path()).tail(2).iter().filter_map(|one| one.port).collect();
        assert_eq!(ports, [600, 601]);
    }

    #[tokio::test]
    async fn log_writes_nothing_after_leaving_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let log = FlowLog::kept_in(dir.path());
        log.record(record(1));
        log.leave_files().await;
        std::fs::remove_dir_all(dir.path()).unwrap();
        log.record(record(2));
        log.flush().await;
        log.leave_files().await;
        assert_eq!(log.tail(10).len(), 2);
        assert!(!dir.path().exists());
    }
}
