//! The socket to QEMU: one task reads frames and one writes them, for as long as QEMU is connected.
//!
//! QEMU may disconnect and come back at any time, and the newest connection is the one that counts. Flows do not
//! notice: they end with the VM, which the daemon reports (see [`lifecycle`](super::lifecycle)).

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::bucket::Bucket;
use super::counters::{add, count};
use super::frame::{Frames, PREFIX};
use super::link::Queues;
use super::pool::Buffer;
use super::socket::Socket;
use super::vm::Vm;
use crate::flow::task_group::TaskGroup;
use crate::policy::Guard;

/// Most frames of one write.
const BATCH: usize = 16;

/// Frames of a guest that are handled before the task yields to the guest's own connections and other tasks of the
/// thread.
const TURN: usize = 64;

/// Frames that the guest does not wait for are sent when this many have gathered, or after [`GATHERING`]. A program
/// that has closed its half and waits only for the other's end learns of it that much later; one that gets an answer
/// does not.
const GATHERED: usize = 8;
const GATHERING: Duration = Duration::from_millis(10);

const _: () = assert!(GATHERED < BATCH, "they leave room for a frame that is waited for");

/// Pause after a failed accept: too many open files, most likely.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(vm: Arc<Vm>, listener: UnixListener) {
    loop {
        let socket = accept(&listener).await;
        let connection = vm.reconnect();
        start(&vm, &connection, read(vm.clone(), socket.clone()));
        start(&vm, &connection, write(vm.clone(), socket));
    }
}

/// Starts one half of a connection. When it ends, the other half is cancelled too.
fn start(vm: &Vm, connection: &TaskGroup, half: impl Future<Output = ()> + Send + 'static) {
    let whole = connection.clone();
    vm.tasks.spawn(connection.wrap(async move {
        half.await;
        whole.cancel();
    }));
}

async fn accept(listener: &UnixListener) -> Socket {
    loop {
        match listener.accept().await.and_then(|(stream, _)| Socket::new(stream)) {
            Ok(socket) => return socket,
            Err(error) => {
                tracing::warn!(%error, "cannot accept QEMU's connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn read(vm: Arc<Vm>, socket: Socket) {
    let mut frames = Frames::new();
    let mut throttle = Throttle::new(&vm.guard);
    let mut frame_rate = Bucket::of_frames(vm.settings.limits.frames, Instant::now());
    let mut turn = 0;
    loop {
        match socket.read(frames.space()).await {
            Ok(0) => return,
            Ok(count) => frames.filled(count),
            Err(error) => return tracing::debug!(%error, vm = vm.identity.name, "cannot read QEMU's socket"),
        }
        loop {
            let length = match frames.next() {
                Ok(Some(frame)) => {
                    vm.frame(frame);
                    frame.len()
                }
                Ok(None) => break,
                Err(error) => {
                    return tracing::warn!(%error, vm = vm.identity.name, "QEMU's connection is dropped after an invalid frame");
                }
            };
            throttle.passed(length).await;
            if let Some(wait) = frame_rate.take(1, Instant::now()) {
                tokio::time::sleep(wait).await;
            }
            turn += 1;
            if turn == TURN {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn write(vm: Arc<Vm>, socket: Socket) {
    let Queues { flows, others, later } = &mut *vm.frames.lock().await;
    let mut throttle = Throttle::new(&vm.guard);
    let mut batch = Vec::with_capacity(BATCH);
    let mut gathered = Vec::with_capacity(GATHERED);
    let mut until = Instant::now();
    loop {
        // Under a limit one at a time, so that no frame waits for the debt of many.
        let most = if throttle.is_limited() { 1 } else { BATCH };
        // In random order, so that no queue starves the others.
        tokio::select! {
            frame = flows.recv() => batch.extend(frame),
            frame = others.recv() => batch.extend(frame),
            frame = later.recv() => {
                if gathered.is_empty() {
                    until = Instant::now() + GATHERING;
                }
                gathered.extend(frame);
                if gathered.len() < GATHERED {
                    continue;
                }
                batch.append(&mut gathered);
            }
            () = tokio::time::sleep_until(until), if !gathered.is_empty() => batch.append(&mut gathered),
        }
        // All queues are closed.
        if batch.is_empty() {
            return;
        }
        let more = std::iter::from_fn(|| flows.try_recv().or_else(|_| others.try_recv()).ok());
        batch.extend(more.take(most.saturating_sub(batch.len())));
        if let Err(error) = write_all(&socket, &batch).await {
            return tracing::debug!(%error, vm = vm.identity.name, "cannot write to QEMU's socket");
        }
        let bytes = batch.iter().map(|frame| frame.len() - PREFIX).sum();
        count(&vm.counters.calls_down);
        add(&vm.counters.frames_down, batch.len());
        batch.clear();
        add(&vm.counters.bytes_down, bytes);
        throttle.passed(bytes).await;
    }
}

async fn write_all(socket: &Socket, frames: &[Buffer]) -> io::Result<()> {
    let mut slices = [IoSlice::new(&[]); BATCH];
    let mut count = 0;
    for (slice, frame) in slices.iter_mut().zip(frames) {
        *slice = IoSlice::new(frame);
        count += 1;
    }
    socket.write_all(&mut slices[..count]).await
}

/// Limits one direction to the policy's bandwidth.
struct Throttle {
    guard: Guard,
    changed: watch::Receiver<u64>,
    bucket: Bucket,
}

impl Throttle {
    fn new(guard: &Guard) -> Self {
        let changed = guard.watch();
        let bucket = Bucket::new(guard.policy().bandwidth_mbps, Instant::now());
        Self { guard: guard.clone(), changed, bucket }
    }

    fn is_limited(&self) -> bool {
        self.bucket.is_limited()
    }

    async fn passed(&mut self, bytes: usize) {
        if self.changed.has_changed().unwrap_or(false) {
            self.changed.mark_unchanged();
            self.bucket.set_rate(self.guard.policy().bandwidth_mbps);
        }
        if let Some(wait) = self.bucket.take(bytes, Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }
}
