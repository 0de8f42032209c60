//! One connection's way up: what the guest says passes the gate, which may have to hear what the server says first.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::set_tcp_keepidle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::gateway::flow::End;
use crate::gateway::gate::{Gate, Offer};
use crate::gateway::settings::ASKED_AT_THE_END;
use crate::rules::Refusal;

/// For each direction of each connection, while there are few.
pub(super) const BUFFER: usize = 64 << 10;

/// Carries what the guest says, as far as it has said whom it is for. Gives back the end that says nothing any more.
pub(super) async fn climb<'a>(
    gate: &mut Gate,
    mut guest: ReadHalf<'a>,
    mut host: WriteHalf<'_>,
    count: &AtomicU64,
    ear: &Ear,
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
                Some(until) => until_then(until, guest.read(space)).await,
                None => Some(guest.read(space).await),
            }
        };
        let waits = gate.is_waiting();
        let read = watched(gate, ear, async {
            tokio::select! {
                biased;
                () = ear.news.notified(), if waits => None,
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
        let mut up = Up { gate, host: &mut host, count, ear };
        up.offer(&space[..length.unwrap_or(0)]).await?;
        ear.admit(!up.gate.needs_name());
        if length == Some(0) {
            up.end().await?;
            let _ = host.shutdown().await;
            let _ = set_tcp_keepidle(guest.as_ref(), ASKED_AT_THE_END);
            return Ok(guest);
        }
    }
}

/// The way from the guest through the gate.
struct Up<'a, 'b> {
    gate: &'a mut Gate,
    host: &'a mut WriteHalf<'b>,
    count: &'a AtomicU64,
    ear: &'a Ear,
}

impl Up<'_, '_> {
    /// Carries what may leave of these bytes, and of those that are held. Returns when the gate has all of them.
    async fn offer(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        loop {
            self.ear.tell(self.gate).map_err(End::Refused)?;
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
                    Offer::Held(0) if self.ear.is_over() => return Err(End::HostReset),
                    Offer::Held(0) => {
                        watched(self.gate, self.ear, self.ear.news.notified()).await.map_err(End::Refused)?
                    }
                    Offer::Held(count) => bytes = &bytes[count..],
                }
            }
        }
    }

    /// The guest says no more: what it has said must do, when the server has answered what is waited for.
    async fn end(&mut self) -> Result<(), End> {
        self.gate.end().map_err(End::Refused)?;
        self.offer(&[]).await?;
        while !self.gate.is_empty() && !self.ear.is_over() {
            watched(self.gate, self.ear, self.ear.news.notified()).await.map_err(End::Refused)?;
            self.offer(&[]).await?;
            self.gate.end().map_err(End::Refused)?;
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        // What the server says from here on may be an answer to this.
        self.ear.attend(self.gate.is_following());
        let written = watched(self.gate, self.ear, self.host.write_all(bytes)).await.map_err(End::Refused)?;
        written.map_err(|_| End::HostReset)?;
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// What the server says, for a gate that waits for it.
#[derive(Debug)]
pub(super) struct Ear {
    /// What it has said since the gate was told, as far as that matters.
    said: Mutex<Option<Vec<u8>>>,
    /// Whether it matters what it says, and not only that it says something. A copy for every connection would be memory
    /// beyond the machine's budget.
    attentive: AtomicBool,
    /// It says no more.
    over: AtomicBool,
    news: Notify,
    /// Whether the guest may hear it: not before it has shown a name, where it must.
    admitted: watch::Sender<bool>,
}

impl Ear {
    /// More than a gate looks at.
    const ENOUGH: usize = 32 << 10;

    pub(super) fn of(gate: &Gate) -> Self {
        let admitted = watch::Sender::new(!gate.needs_name());
        let (attentive, over) = (AtomicBool::new(gate.is_following()), AtomicBool::new(false));
        Self { said: Mutex::default(), attentive, over, news: Notify::new(), admitted }
    }

    fn attend(&self, attentive: bool) {
        self.attentive.store(attentive, Ordering::SeqCst);
    }

    fn admit(&self, admitted: bool) {
        self.admitted.send_if_modified(|before| std::mem::replace(before, admitted) != admitted);
    }

    /// Returns when the guest may hear what the server says.
    pub(super) async fn admitted(&self) {
        // The sender lives as long as this does.
        let _ = self.admitted.subscribe().wait_for(|admitted| *admitted).await;
    }

    /// Before the guest hears it.
    pub(super) fn hear(&self, bytes: &[u8]) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.get_or_insert_default();
        if self.attentive.load(Ordering::SeqCst) {
            said.extend_from_slice(&bytes[..bytes.len().min(Self::ENOUGH - said.len())]);
        }
        self.news.notify_one();
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.news.notify_one();
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn tell(&self, gate: &mut Gate) -> Result<(), Refusal> {
        match self.said.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(said) => gate.hear(&said),
            None => Ok(()),
        }
    }
}

/// What comes before the time is up.
async fn until_then<T>(until: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(until, work).await.ok()
}

/// Does something for as long as the policy allows the flow.
pub(super) async fn watched<T>(
    gate: &mut Gate,
    ear: &Ear,
    work: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            () = gate.changed() => {
                gate.judge_again()?;
                ear.admit(!gate.needs_name());
            }
            done = &mut work => return Ok(done),
        }
    }
}
