//! The policy itself. It is always valid, because it is only made from a checked [`PolicyChange`].

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::change::PolicyChange;
use super::cidr::CidrRule;
use super::domain::{DomainName, DomainRule};
use super::problems::{Findings, PolicyProblems};

/// The most rules of one kind. Every flow is compared with all of them; a policy that needs more should use a wildcard
/// or a wider network.
pub const MAX_RULES: usize = 256;

/// The most bytes of all rules of one policy. They are in the ledger, which must stay small.
pub const MAX_POLICY_TEXT: usize = 64 * 1024;

/// The largest bandwidth limit. A larger one would have no effect.
pub const MAX_BANDWIDTH_MBPS: u32 = 100_000;

/// The network policy of a workspace. The default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PolicyChange", into = "PolicyChange")]
pub struct NetworkPolicy {
    pub allow_internet: bool,
    pub allow_inter_vm: bool,
    /// TCP ports that other workspaces may open here. Empty: every port.
    pub allowed_ports: Vec<u16>,
    pub allow_domains: Vec<DomainRule>,
    pub deny_domains: Vec<DomainRule>,
    pub allow_cidrs: Vec<CidrRule>,
    pub deny_cidrs: Vec<CidrRule>,
    /// The limit for each direction. `None`: no limit.
    pub bandwidth_mbps: Option<u32>,
}

impl NetworkPolicy {
    /// Checks that it is short enough to be stored. Policies that are already stored are read back whatever their
    /// length.
    pub fn check_length(&self) -> Result<(), PolicyProblems> {
        let domains = self.allow_domains.iter().chain(&self.deny_domains).map(|rule| rule.to_string().len());
        let networks = self.allow_cidrs.iter().chain(&self.deny_cidrs).map(|rule| rule.to_string().len());
        let len: usize = domains.chain(networks).sum();
        let mut findings = Findings::default();
        if len > MAX_POLICY_TEXT {
            let message = format!("have {len} bytes in total; at most {MAX_POLICY_TEXT} are allowed");
            findings.add("rules", message);
        }
        findings.into_result()
    }

    /// The rule that denies the name on all ports. A name that is denied on certain ports only may still be resolved.
    pub fn denies_name(&self, name: &DomainName) -> Option<&DomainRule> {
        self.deny_domains.iter().find(|rule| rule.ports().is_all() && rule.matches_name(name))
    }

    pub fn denies_name_at(&self, name: &DomainName, port: u16) -> Option<&DomainRule> {
        self.deny_domains.iter().find(|rule| rule.matches(name, port))
    }

    /// Whether any name is denied on this port, so that a connection to it must show its name.
    pub fn denies_names_at(&self, port: u16) -> bool {
        self.deny_domains.iter().any(|rule| rule.ports().contains(port))
    }

    pub fn allows_name(&self, name: &DomainName) -> Option<&DomainRule> {
        self.allow_domains.iter().find(|rule| rule.matches_name(name))
    }

    pub fn allows_name_at(&self, name: &DomainName, port: u16) -> Option<&DomainRule> {
        self.allow_domains.iter().find(|rule| rule.matches(name, port))
    }

    pub fn denies_address(&self, address: Ipv4Addr, port: u16) -> Option<&CidrRule> {
        self.deny_cidrs.iter().find(|rule| rule.matches(address, port))
    }

    /// Whether other workspaces may open this TCP port here.
    pub fn accepts_port(&self, port: u16) -> bool {
        self.allowed_ports.is_empty() || self.allowed_ports.contains(&port)
    }
}

impl TryFrom<PolicyChange> for NetworkPolicy {
    type Error = PolicyProblems;
    fn try_from(change: PolicyChange) -> Result<Self, PolicyProblems> {
        change.apply_to(&Self::default())
    }
}
