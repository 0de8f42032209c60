//! The guard's answers, with messages that help readers of the log.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Tcp,
    Udp,
    Icmp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed {
        /// The rule as it stands in the policy: `allow_domains example.com`.
        rule: String,
        /// The destination's name, if known.
        name: Option<String>,
    },
    Refused(Refusal),
}

impl Verdict {
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Allowed { .. } => true,
            Self::Refused(_) => false,
        }
    }
}

/// The reason that something may not pass, and the change that would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: RefusalCode,
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The host's loopback or the gateway itself: no policy opens them.
    Unreachable,
    DeniedAddress,
    DeniedName,
    /// An address that is not public, or the host's own.
    PrivateAddress,
    /// The name is allowed, but not on this port.
    PortNotAllowed,
    /// The connection names another host than the name its address was resolved from.
    NameMismatch,
    /// The connection names no host, or hides the name.
    NameHidden,
    NameNotAllowed,
    /// Neither the internet nor this address or its name is allowed.
    NotAllowed,
}
