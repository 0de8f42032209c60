//! One TCP connection: carries bytes between the guest's end and the host's end.
//!
//! Neither end can make us buffer more than the stack's two buffers. If the host is slow, the stack's window closes and
//! the guest waits; if the guest is slow, the host's socket is not read. Half-closed connections stay half-closed, and
//! a reset of one end resets the other.
//!
//! ```text
//!            packets            window             bytes
//!   guest ───────────▶ Stack ─────────── Flow ─────────────▶ Host
//!         ◀───────────       ───────────      ◀─────────────
//! ```

use std::io;
use std::time::Duration;

use smoltcp::socket::tcp::State;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::host::Host;
use super::pool::Buffer;
use super::stack::Stack;
use crate::flow::account::{Account, End};
use crate::flow::gate::{Gate, Offer};
use crate::flow::limits::{ASKED_AT_THE_END, CONNECT_DEADLINE};
use crate::policy::Refusal;

/// Packets that are handled before the host's end is served.
const BATCH: usize = 32;

/// Bytes in one direction above which a connection has filled so much of its buffers that releasing them is worth a
/// system call.
const WORTH_RELEASING: u64 = 64 << 10;

/// Delay of the acknowledgement of the guest's end, to send it together with the end of the host's side, which most
/// servers close in response: one packet for the guest instead of two.
const BOTH_ENDS: Duration = Duration::from_millis(1);

/// Everything that one connection consists of.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) stack: Stack,
    pub(crate) packets: mpsc::Receiver<Buffer>,
    /// Declared, and so dropped, before the host's end: the log has the closing record before the other side learns of
    /// it.
    pub(crate) account: Account,
    pub(crate) host: Host,
    /// `None`: the policy does not apply to this flow.
    pub(crate) gate: Option<Gate>,
}

/// The progress of a connection.
#[derive(Debug, Default)]
struct Progress {
    opened: bool,
    /// The guest has sent its last byte.
    guest_ended: bool,
    /// The host's end was shut down for writing because of that.
    told_host: bool,
    /// Bytes from the host's end until then.
    down_at_end: Option<u64>,
    /// Deadline for the host's end to close as well; see [`BOTH_ENDS`].
    ending: Option<Instant>,
    /// The host's end has sent its last byte.
    host_ended: bool,
    /// The host's end accepts no more bytes, so further bytes of the guest are discarded.
    host_deaf: bool,
    /// The host's end is gone; the guest is reset once it has everything that came before.
    host_gone: bool,
    /// Deadline for the guest to show which host its bytes are for.
    patience: Option<Instant>,
    host_full: bool,
}

impl Flow {
    /// Carries bytes until the connection has ended, and closes or resets both ends. The returned stack can be used
    /// again.
    pub(crate) async fn run(mut self) -> (End, Stack) {
        let end = self.carry().await;
        match &end {
            End::Finished => self.host.finished(),
            End::GuestReset | End::NotOpened => {}
            End::HostReset | End::Refused(_) => self.reset_guest().await,
        }
        if let Some(name) = self.gate.as_ref().and_then(Gate::name) {
            self.account.set_name(name);
        }
        self.account.set_end(&end);
        if self.account.up.max(self.account.down) > WORTH_RELEASING && self.stack.is_over() {
            self.stack.release();
        }
        (end, self.stack)
    }

    async fn carry(&mut self) -> End {
        let mut progress = Progress::default();
        let deadline = Instant::now() + CONNECT_DEADLINE;
        loop {
            for _ in 0..BATCH {
                let Ok(packet) = self.packets.try_recv() else { break };
                self.stack.push(packet);
            }
            let carried = self.up(&mut progress).and_then(|()| {
                let waited = self.is_waiting();
                self.down(&mut progress)?;
                Ok(waited && !self.is_waiting())
            });
            let answered = match carried {
                Ok(answered) => answered,
                Err(refusal) => return End::Refused(refusal),
            };
            progress.ending = progress.ending.filter(|until| self.expects_end(&progress, *until));
            if progress.ending.is_none() {
                match self.only_ends_follow(&progress) {
                    true => self.stack.flush_later(),
                    false => self.stack.flush(),
                }
            }
            if let Some(end) = self.over(&mut progress) {
                return end;
            }
            // The server's answer may have released held bytes.
            if answered {
                continue;
            }
            if let Err(end) = self.wait(&progress, deadline).await {
                return end;
            }
        }
    }

    fn is_waiting(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::is_waiting)
    }

    /// From the guest to the host.
    fn up(&mut self, progress: &mut Progress) -> Result<(), Refusal> {
        progress.guest_ended |= has_ended(self.stack.socket().state());
        progress.host_full = false;
        self.pump(progress)?;
        if let Some(gate) = &mut self.gate {
            progress.patience = gate.patience().map(|patience| {
                let until = Instant::now() + patience;
                progress.patience.map_or(until, |before| before.min(until))
            });
            let all_said = progress.guest_ended && !self.stack.socket().can_recv();
            if all_said || progress.patience.is_some_and(|until| until <= Instant::now()) {
                gate.end()?;
                self.pump(progress)?;
            }
        }
        // Bytes that wait for an answer are discarded if the server has closed.
        let is_empty = progress.host_ended || self.gate.as_ref().is_none_or(Gate::is_empty);
        let socket = self.stack.socket();
        if progress.guest_ended && !socket.can_recv() && is_empty && !progress.told_host {
            progress.told_host = true;
            progress.down_at_end = Some(self.account.down);
            progress.ending = Some(Instant::now() + BOTH_ENDS);
            self.host.end_writing();
            socket.set_keep_alive(Some(ASKED_AT_THE_END.into()));
        }
        Ok(())
    }

    /// Writes the bytes that may leave, as far as the host accepts them at once.
    fn pump(&mut self, progress: &mut Progress) -> Result<(), Refusal> {
        let socket = self.stack.socket();
        while !progress.host_full {
            if let Some(gate) = self.gate.as_mut().filter(|gate| !gate.free().is_empty()) {
                let written = write(&self.host, gate.free(), &mut self.account.up, progress);
                gate.left(written);
                continue;
            }
            if !socket.can_recv() {
                break;
            }
            let received = socket.recv(|bytes| {
                let count =
                    match self.gate.as_mut().map_or(Ok(Offer::Pass(bytes.len())), |gate| gate.offer(bytes)) {
                        Ok(Offer::Pass(count)) => count,
                        Ok(Offer::Held(count)) => return (count, Ok(count > 0)),
                        Err(refusal) => return (0, Err(refusal)),
                    };
                let written = write(&self.host, &bytes[..count], &mut self.account.up, progress);
                let passed = self.gate.as_mut().map_or(Ok(()), |gate| gate.passed(&bytes[..written]));
                (written, passed.map(|()| true))
            });
            match received {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) | Err(_) => break,
                Ok(Err(refusal)) => return Err(refusal),
            }
        }
        Ok(())
    }

    /// From the host to the guest.
    fn down(&mut self, progress: &mut Progress) -> Result<(), Refusal> {
        let socket = self.stack.socket();
        let mut heard = Ok(());
        let may_hear = !self.gate.as_ref().is_some_and(Gate::needs_name);
        while may_hear && heard.is_ok() && !progress.host_ended && !progress.host_gone && socket.can_send() {
            let read = socket.send(|space| match self.host.try_read(space) {
                Ok(count) => {
                    if let Some(gate) = &mut self.gate {
                        heard = gate.hear(&space[..count]);
                    }
                    (count, Ok(count))
                }
                Err(error) => (0, Err(error)),
            });
            match read {
                Ok(Ok(0)) => progress.host_ended = true,
                Ok(Ok(count)) => self.account.down += count as u64,
                Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_)) => progress.host_gone = true,
                Err(_) => break,
            }
        }
        // A server that has ended and accepts nothing more has closed both directions.
        progress.host_gone |= progress.host_ended && progress.host_deaf;
        if progress.host_ended && !progress.host_gone {
            socket.close();
        }
        heard
    }

    /// Whether the acknowledgement of the guest's end should still wait for the host's end.
    fn expects_end(&mut self, progress: &Progress, until: Instant) -> bool {
        let host_talks = progress.host_ended || progress.host_gone || self.stack.socket().send_queue() > 0;
        !host_talks && Instant::now() < until
    }

    /// Whether only the acknowledgement of the guest's end is left to send. A guest that has only half-closed may still
    /// wait for the server's bytes and its end.
    fn only_ends_follow(&mut self, progress: &Progress) -> bool {
        let nothing_said_since = progress.down_at_end == Some(self.account.down);
        nothing_said_since && !progress.host_gone && self.stack.socket().send_queue() == 0
    }

    fn over(&mut self, progress: &mut Progress) -> Option<End> {
        let blocked = self.stack.is_blocked();
        let socket = self.stack.socket();
        match socket.state() {
            State::Closed | State::TimeWait | State::Listen => {
                if !progress.opened {
                    return Some(End::NotOpened);
                }
                if !(progress.guest_ended && progress.host_ended) {
                    return Some(End::GuestReset);
                }
                // Bytes that the guest sent before its end may still wait for a slow host.
                (progress.told_host && !blocked).then_some(End::Finished)
            }
            State::SynSent | State::SynReceived => None,
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => {
                progress.opened = true;
                let delivered = socket.send_queue() == 0;
                (progress.host_gone && delivered).then_some(End::HostReset)
            }
        }
    }

    async fn wait(&mut self, progress: &Progress, deadline: Instant) -> Result<(), End> {
        let due = self.stack.due();
        let (blocked, ending) = (self.stack.is_blocked(), progress.ending.is_some());
        let socket = self.stack.socket();
        let may_hear = !self.gate.as_ref().is_some_and(Gate::needs_name);
        let wants_bytes = may_hear && socket.can_send() && !progress.host_ended && !progress.host_gone;
        let gate = &mut self.gate;
        let changed = async {
            match gate {
                Some(gate) => {
                    gate.changed().await;
                    gate.judge_again()
                }
                None => std::future::pending().await,
            }
        };
        // The policy comes first, so that nothing passes that is no longer allowed. Packets come before the host's
        // bytes, because they make room for those.
        tokio::select! {
            biased;
            judged = changed => judged.map_err(End::Refused)?,
            packet = self.packets.recv() => match packet {
                Some(packet) => self.stack.push(packet),
                None => return Err(End::GuestReset),
            },
            room = self.stack.link().wait(), if blocked => match room {
                Some(room) => self.stack.flush_into(room),
                // The VM is being detached: there will be no room again.
                None => return Err(End::GuestReset),
            },
            () = self.host.writable(), if progress.host_full => {}
            () = self.host.readable(), if wants_bytes => {}
            () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() && !blocked && !ending => {}
            () = tokio::time::sleep_until(progress.patience.unwrap_or(deadline)), if progress.patience.is_some() => {}
            () = tokio::time::sleep_until(progress.ending.unwrap_or(deadline)), if progress.ending.is_some() => {}
            () = tokio::time::sleep_until(deadline), if !progress.opened => return Err(End::NotOpened),
        }
        Ok(())
    }

    async fn reset_guest(&mut self) {
        self.stack.socket().abort();
        self.stack.flush();
        while self.stack.is_blocked() {
            let Some(room) = self.stack.link().wait().await else { return };
            self.stack.flush_into(room);
        }
    }
}

/// Writes what the host accepts at once. Returns how many bytes are done with.
fn write(host: &Host, bytes: &[u8], count: &mut u64, progress: &mut Progress) -> usize {
    if progress.host_deaf {
        return bytes.len();
    }
    match host.try_write(bytes) {
        Ok(written) => {
            *count += written as u64;
            written
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            progress.host_full = true;
            0
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        Err(_) => {
            progress.host_deaf = true;
            bytes.len()
        }
    }
}

/// Whether the guest has sent its FIN.
fn has_ended(state: State) -> bool {
    match state {
        State::CloseWait | State::LastAck | State::Closing | State::TimeWait => true,
        State::Closed
        | State::Listen
        | State::SynSent
        | State::SynReceived
        | State::Established
        | State::FinWait1
        | State::FinWait2 => false,
    }
}
