//! The flow-log records of one flow: one when it is opened, and one at its end with the bytes it carried.

use std::net::SocketAddrV4;

use super::log::{FlowEvent, FlowLog, FlowRecord};
use crate::policy::{Refusal, Transport};

/// The way a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides have closed.
    Finished,
    GuestReset,
    HostReset,
    Refused(Refusal),
    /// The guest did not complete the handshake.
    NotOpened,
}

/// Writes the closing record when it is dropped, so that a flow whose task is cancelled has one too.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) up: u64,
    pub(crate) down: u64,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    log: FlowLog,
    record: FlowRecord,
    not_opened: String,
}

impl Account {
    /// For flows to the gateway's own name service, which are not logged.
    pub(crate) fn unlogged() -> Self {
        Self { up: 0, down: 0, entry: None }
    }

    pub(crate) fn opened(
        log: &FlowLog,
        transport: Transport,
        guest_port: u16,
        remote: SocketAddrV4,
        rule: &str,
        name: Option<&str>,
    ) -> Self {
        let mut record = FlowRecord::now(FlowEvent::Opened, transport, remote);
        record.guest_port = Some(guest_port);
        record.rule = Some(rule.to_owned());
        record.name = name.map(str::to_owned);
        log.record(record.clone());
        record.event = FlowEvent::Closed;
        let not_opened = "the guest did not complete the connection".to_owned();
        Self { up: 0, down: 0, entry: Some(Entry { log: log.clone(), record, not_opened }) }
    }

    /// The message for a guest that does not complete the connection.
    pub(crate) fn if_not_opened(mut self, message: String) -> Self {
        if let Some(entry) = &mut self.entry {
            entry.not_opened = message;
        }
        self
    }

    pub(crate) fn set_end(&mut self, end: &End) {
        let message = match end {
            End::Finished => None,
            End::GuestReset => Some("reset by the guest".to_owned()),
            End::HostReset => Some("reset by the other side".to_owned()),
            End::Refused(refusal) => Some(refusal.message.clone()),
            End::NotOpened => self.entry.as_ref().map(|entry| entry.not_opened.clone()),
        };
        if let Some(message) = message {
            self.set_message(message);
        }
    }

    pub(crate) fn set_message(&mut self, message: String) {
        if let Some(entry) = &mut self.entry {
            entry.record.message = Some(message);
        }
    }

    /// The name that the flow turned out to go to.
    pub(crate) fn set_name(&mut self, name: &str) {
        if let Some(entry) = &mut self.entry {
            entry.record.name = Some(name.to_owned());
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(Entry { log, mut record, .. }) = self.entry.take() {
            record.at = jiff::Timestamp::now();
            record.bytes_up = self.up;
            record.bytes_down = self.down;
            log.record(record);
        }
    }
}
