//! One record of the flow log: one line as text, one object as JSON.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::policy::Transport;

/// Longer names and messages are cut, because the guest chooses names and text that messages quote.
const MAX_TEXT: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowEvent {
    Opened,
    Refused,
    Closed,
    /// Frames or packets that belong to no flow.
    Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRecord {
    pub at: Timestamp,
    pub event: FlowEvent,
    pub transport: Transport,
    /// `None` for protocols without ports.
    pub guest_port: Option<u16>,
    pub address: Ipv4Addr,
    pub port: Option<u16>,
    /// The destination's name, if known.
    pub name: Option<String>,
    /// The rule that allowed it.
    pub rule: Option<String>,
    /// The reason that it was refused, closed or dropped.
    pub message: Option<String>,
    /// From the guest.
    pub bytes_up: u64,
    /// To the guest.
    pub bytes_down: u64,
}

impl FlowRecord {
    /// A record of this instant, to be completed by the caller. Port 0 means a protocol without ports.
    pub fn now(event: FlowEvent, transport: Transport, to: SocketAddrV4) -> Self {
        Self {
            at: Timestamp::now(),
            event,
            transport,
            guest_port: None,
            address: *to.ip(),
            port: (to.port() != 0).then_some(to.port()),
            name: None,
            rule: None,
            message: None,
            bytes_up: 0,
            bytes_down: 0,
        }
    }

    /// Keeps a record small, whatever the guest put into it.
    pub(super) fn shorten(&mut self) {
        for text in [&mut self.name, &mut self.rule, &mut self.message].into_iter().flatten() {
            if text.len() > MAX_TEXT {
                text.truncate(text.floor_char_boundary(MAX_TEXT));
                text.push('…');
            }
        }
    }
}

/// One line: `12:00:00.123 refused tcp 93.184.216.34:443 (example.com): …`. Control characters are escaped, because
/// names and messages hold what a guest chose and people read this in a terminal.
impl fmt::Display for FlowRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = match self.event {
            FlowEvent::Opened => "opened",
            FlowEvent::Refused => "refused",
            FlowEvent::Closed => "closed",
            FlowEvent::Dropped => "dropped",
        };
        write!(
            f,
            "{} {event} {} {}",
            self.at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"),
            self.transport,
            self.address
        )?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " ({})", Plain(name))?;
        }
        if let Some(port) = self.guest_port {
            write!(f, " from port {port}")?;
        }
        if let Some(rule) = &self.rule {
            write!(f, " by {}", Plain(rule))?;
        }
        if self.event == FlowEvent::Closed {
            write!(f, ", {} bytes up, {} bytes down", self.bytes_up, self.bytes_down)?;
        }
        if let Some(message) = &self.message {
            write!(f, ": {}", Plain(message))?;
        }
        Ok(())
    }
}

/// Text with control characters escaped, safe for a terminal.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}
