//! What the flow log learns of one flow: that it was opened, and at its end how much it carried.

use std::net::SocketAddrV4;

use super::flow::End;
use crate::log::{FlowEvent, FlowLog, FlowRecord};
use crate::rules::Transport;

/// Writes the record of the end when it is dropped, so that a flow whose task is ended from outside has one too.
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
    /// For flows with ourselves, of which the log says nothing.
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
        let not_opened = "the guest did not complete it".to_owned();
        Self { up: 0, down: 0, entry: Some(Entry { log: log.clone(), record, not_opened }) }
    }

    /// What it means if the guest does not take part.
    pub(crate) fn if_not_opened(mut self, message: String) -> Self {
        if let Some(entry) = &mut self.entry {
            entry.not_opened = message;
        }
        self
    }

    pub(crate) fn ends(&mut self, end: &End) {
        let said = match end {
            End::Finished => None,
            End::GuestReset => Some("reset by the guest".to_owned()),
            End::HostReset => Some("reset by the other side".to_owned()),
            End::Refused(refusal) => Some(refusal.message.clone()),
            End::NotOpened => self.entry.as_ref().map(|entry| entry.not_opened.clone()),
        };
        if let Some(said) = said {
            self.says(said);
        }
    }

    pub(crate) fn says(&mut self, message: String) {
        if let Some(entry) = &mut self.entry {
            entry.record.message = Some(message);
        }
    }

    /// What it turned out to go to.
    pub(crate) fn names(&mut self, name: &str) {
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
