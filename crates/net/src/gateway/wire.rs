//! The socket to QEMU: one task that reads frames, one that writes them, both as long as QEMU stays.
//!
//! QEMU may go and come back at any time, and the newest connection is the one that counts. Flows do not notice: they
//! end with the machine, which whoever runs it tells (see [`lives`](super::lives)).

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::bucket::Bucket;
use super::counters::{add, count};
use super::frame::{Frames, PREFIX};
use super::link::Waiting;
use super::pool::Buffer;
use super::socket::Socket;
use super::vm::Vm;
use crate::life::Life;
use crate::rules::Guard;

/// Frames that are written at once.
const BATCH: usize = 16;

/// Frames of a guest that are handled before others have their turn: its own connections, and whoever is on the same thread.
const TURN: usize = 64;

/// Frames that nobody waits for are sent when so many have gathered, or after a while. A program that has closed its half
/// and waits for nothing but the other's end is told of it that much later; one that is answered is not.
const GATHERED: usize = 8;
const GATHERING: Duration = Duration::from_millis(10);

const _: () = assert!(GATHERED < BATCH, "they leave room for a frame that is waited for");

/// Until a listener that failed is asked again: too many open files, most likely.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(vm: Arc<Vm>, listener: UnixListener) {
    loop {
        let socket = accept(&listener).await;
        let connection = vm.plug();
        start(&vm, &connection, read(vm.clone(), socket.clone()));
        start(&vm, &connection, write(vm.clone(), socket));
    }
}

/// Starts one half of a connection. The other has nothing to do without it and ends with it.
fn start(vm: &Vm, connection: &Life, half: impl Future<Output = ()> + Send + 'static) {
    let whole = connection.clone();
    vm.tasks.spawn(connection.part(async move {
        half.await;
        whole.cancel();
    }));
}

async fn accept(listener: &UnixListener) -> Socket {
    loop {
        match listener.accept().await.and_then(|(stream, _)| Socket::new(stream)) {
            Ok(socket) => return socket,
            Err(error) => {
                tracing::warn!(%error, "QEMU's connection cannot be accepted");
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
            Err(error) => return tracing::debug!(%error, vm = vm.seat.name, "QEMU's socket cannot be read"),
        }
        loop {
            let length = match frames.next() {
                Ok(Some(frame)) => {
                    vm.frame(frame);
                    frame.len()
                }
                Ok(None) => break,
                Err(error) => {
                    return tracing::warn!(%error, vm = vm.seat.name, "QEMU's connection is dropped");
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
    let Waiting { flows, others, later } = &mut *vm.frames.lock().await;
    let mut throttle = Throttle::new(&vm.guard);
    let mut batch = Vec::with_capacity(BATCH);
    let mut gathered = Vec::with_capacity(GATHERED);
    let mut until = Instant::now();
    loop {
        // Under a limit one after the other, so that none waits for the debt of many.
        let most = if throttle.is_limited() { 1 } else { BATCH };
        // In no fixed order, so that none starves the others.
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
        // Nobody will send any more.
        if batch.is_empty() {
            return;
        }
        let more = std::iter::from_fn(|| flows.try_recv().or_else(|_| others.try_recv()).ok());
        batch.extend(more.take(most.saturating_sub(batch.len())));
        if let Err(error) = write_all(&socket, &batch).await {
            return tracing::debug!(%error, vm = vm.seat.name, "QEMU's socket cannot be written");
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

/// Holds one direction to the policy's bandwidth.
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
