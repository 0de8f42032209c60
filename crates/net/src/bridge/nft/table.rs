//! A table and its parts as values.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::terms::{Action, Match};

/// The name of our tables, one in each family. No other table is ever touched.
pub(crate) const NAME: &str = "agentiso";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Ip,
    Bridge,
    /// For the table that counts: the others are replaced as a whole, and counts must survive that.
    Inet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) sets: Vec<Set>,
    pub(crate) chains: Vec<Chain>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) name: String,
    /// Whether its elements may expire.
    pub(crate) timed: bool,
    pub(crate) kind: SetKind,
}

/// The content of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetKind {
    Ports(Vec<u16>),
    /// Addresses without ports.
    Addresses(Vec<Element>),
    /// Addresses with ports.
    Endpoints(Vec<Element>),
    /// A map from an address to a chain.
    ByAddress(Vec<(Ipv4Addr, Target)>),
    ByInterface(Vec<(String, Target)>),
    /// Counts that rules update, of at most this many keys.
    Counts {
        most: u32,
    },
}

/// An address in a set, with an optional expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) address: Ipv4Addr,
    /// Used only in sets of endpoints.
    pub(crate) port: u16,
    pub(crate) left: Option<Duration>,
}

/// The chain to go to, without return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target(pub(crate) String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) name: String,
    /// `None`: entered only from other chains.
    pub(crate) hook: Option<Hook>,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) kind: ChainKind,
    pub(crate) at: HookPoint,
    pub(crate) priority: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainKind {
    Filter,
    Nat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookPoint {
    Prerouting,
    Forward,
    Output,
    Postrouting,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) matches: Vec<Match>,
    pub(crate) action: Action,
}

impl Chain {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), hook: None, rules: Vec::new() }
    }

    pub(crate) fn at(name: &str, kind: ChainKind, at: HookPoint, priority: i32) -> Self {
        Self { hook: Some(Hook { kind, at, priority }), ..Self::new(name) }
    }

    pub(crate) fn rule(&mut self, matches: impl Into<Vec<Match>>, action: Action) -> &mut Self {
        self.rules.push(Rule { matches: matches.into(), action });
        self
    }
}

impl Element {
    pub(crate) fn address(address: Ipv4Addr) -> Self {
        Self { address, port: 0, left: None }
    }

    pub(crate) fn endpoint(address: Ipv4Addr, port: u16) -> Self {
        Self { address, port, left: None }
    }
}
