//! Carries one relayed connection from the guest to the host: the guest's bytes pass the gate, which may have to see
//! the server's answer first.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::set_tcp_keepidle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::flow::account::End;
use crate::flow::gate::{Gate, Offer};
use crate::flow::limits::ASKED_AT_THE_END;
use crate::policy::Refusal;

/// Size of the buffer for each direction of a connection, while there are few connections.
pub(super) const BUFFER: usize = 64 << 10;

/// Carries the guest's bytes once the gate lets them pass. Returns the guest's reading half when the guest has closed
/// its side.
pub(super) async fn carry_guest_to_host<'a>(
    gate: &mut Gate,
    mut guest: ReadHalf<'a>,
    mut host: WriteHalf<'_>,
    count: &AtomicU64,
    server: &ServerOutput,
    space: &mut [u8],
) -> Result<ReadHalf<'a>, End> {
    let mut patience: Option<Instant> = None;
    loop {
        patience = gate.patience().map(|wait| {
            let until = Instant::now() + wait;
            patience.map_or(until, |before| before.min(until))
        });
        let read = async {
            match patience {
                Some(until) => before_deadline(until, guest.read(space)).await,
                None => Some(guest.read(space).await),
            }
        };
        let waits = gate.is_waiting();
        let read = while_allowed(gate, server, async {
            tokio::select! {
                biased;
                () = server.changed.notified(), if waits => None,
                read = read => Some(read),
            }
        });
        let length = match read.await.map_err(End::Refused)? {
            None => None,
            Some(None) => {
                gate.end().map_err(End::Refused)?;
                None
            }
            Some(Some(Ok(length))) => Some(length),
            Some(Some(Err(_))) => return Err(End::GuestReset),
        };
        let mut outgoing = Outgoing { gate, host: &mut host, count, server };
        outgoing.offer(&space[..length.unwrap_or(0)]).await?;
        server.set_admitted(!outgoing.gate.needs_name());
        if length == Some(0) {
            outgoing.end().await?;
            let _ = host.shutdown().await;
            let _ = set_tcp_keepidle(guest.as_ref(), ASKED_AT_THE_END);
            return Ok(guest);
        }
    }
}

/// The direction from the guest through the gate to the host.
struct Outgoing<'a, 'b> {
    gate: &'a mut Gate,
    host: &'a mut WriteHalf<'b>,
    count: &'a AtomicU64,
    server: &'a ServerOutput,
}

impl Outgoing<'_, '_> {
    /// Writes those of the new and the held bytes that may leave. Returns when the gate has taken all of them.
    async fn offer(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        loop {
            self.server.report_to(self.gate).map_err(End::Refused)?;
            if !self.gate.free().is_empty() {
                let free = self.gate.free().to_vec();
                self.write(&free).await?;
                self.gate.left(free.len());
            } else if bytes.is_empty() {
                return Ok(());
            } else {
                match self.gate.offer(bytes).map_err(End::Refused)? {
                    Offer::Pass(count) => {
                        self.write(&bytes[..count]).await?;
                        self.gate.passed(&bytes[..count]).map_err(End::Refused)?;
                        bytes = &bytes[count..];
                    }
                    Offer::Held(0) if self.server.has_ended() => return Err(End::HostReset),
                    Offer::Held(0) => while_allowed(self.gate, self.server, self.server.changed.notified())
                        .await
                        .map_err(End::Refused)?,
                    Offer::Held(count) => bytes = &bytes[count..],
                }
            }
        }
    }

    /// The guest sends no more: the gate decides by the bytes so far, after the server has answered if that is awaited.
    async fn end(&mut self) -> Result<(), End> {
        self.gate.end().map_err(End::Refused)?;
        self.offer(&[]).await?;
        while !self.gate.is_empty() && !self.server.has_ended() {
            while_allowed(self.gate, self.server, self.server.changed.notified())
                .await
                .map_err(End::Refused)?;
            self.offer(&[]).await?;
            self.gate.end().map_err(End::Refused)?;
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        // The server's bytes from here on may be an answer to this.
        self.server.set_recording(self.gate.is_following());
        let written =
            while_allowed(self.gate, self.server, self.host.write_all(bytes)).await.map_err(End::Refused)?;
        written.map_err(|_| End::HostReset)?;
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// The server's bytes, shared with the gate that may wait for them.
#[derive(Debug)]
pub(super) struct ServerOutput {
    /// Bytes since the last report to the gate, as far as they matter. `None`: the server has sent nothing.
    recorded: Mutex<Option<Vec<u8>>>,
    /// Whether the bytes themselves matter, and not only that there are some. Copying them for every connection would
    /// use memory beyond the VM's budget.
    recording: AtomicBool,
    /// The server has closed its side.
    ended: AtomicBool,
    changed: Notify,
    /// Whether the guest may receive the server's bytes: not before it has shown a name, if it must.
    admitted: watch::Sender<bool>,
}

impl ServerOutput {
    /// Most bytes that are kept: more than a gate inspects.
    const MOST: usize = 32 << 10;

    pub(super) fn new(gate: &Gate) -> Self {
        let admitted = watch::Sender::new(!gate.needs_name());
        let (recording, ended) = (AtomicBool::new(gate.is_following()), AtomicBool::new(false));
        Self { recorded: Mutex::default(), recording, ended, changed: Notify::new(), admitted }
    }

    fn set_recording(&self, recording: bool) {
        self.recording.store(recording, Ordering::SeqCst);
    }

    fn set_admitted(&self, admitted: bool) {
        self.admitted.send_if_modified(|before| std::mem::replace(before, admitted) != admitted);
    }

    /// Returns when the guest may receive the server's bytes.
    pub(super) async fn wait_until_admitted(&self) {
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.admitted.subscribe().wait_for(|admitted| *admitted).await;
    }

    /// Records the server's bytes. Call it before the guest receives them.
    pub(super) fn record(&self, bytes: &[u8]) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = recorded.get_or_insert_default();
        if self.recording.load(Ordering::SeqCst) {
            recorded.extend_from_slice(&bytes[..bytes.len().min(Self::MOST - recorded.len())]);
        }
        self.changed.notify_one();
    }

    pub(super) fn set_ended(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn report_to(&self, gate: &mut Gate) -> Result<(), Refusal> {
        match self.recorded.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(recorded) => gate.hear(&recorded),
            None => Ok(()),
        }
    }
}

/// The output of a future, or `None` if it takes until the deadline.
async fn before_deadline<T>(until: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(until, work).await.ok()
}

/// Runs a future for as long as the policy allows the flow.
pub(super) async fn while_allowed<T>(
    gate: &mut Gate,
    server: &ServerOutput,
    work: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            () = gate.changed() => {
                gate.judge_again()?;
                server.set_admitted(!gate.needs_name());
            }
            done = &mut work => return Ok(done),
        }
    }
}
