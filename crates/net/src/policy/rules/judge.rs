//! The decision itself: a function of the policy, the destination and the names it is known by.

use std::net::{Ipv4Addr, SocketAddrV4};

use agentiso_core::network::{CidrRule, DomainName, DomainRule, NetworkPolicy, never_public, unreachable};

use super::verdict::{Refusal, RefusalCode, Transport, Verdict};
use crate::policy::sniff::Claim;

/// Everything one decision depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'a> {
    pub(super) policy: &'a NetworkPolicy,
    /// The names the guest resolved this address from.
    pub(super) names: &'a [DomainName],
    pub(super) is_host: bool,
    pub(super) gateway: Ipv4Addr,
    pub(super) to: SocketAddrV4,
}

/// The rule that allows a flow, before its first bytes are known.
#[derive(Clone, Copy, Debug)]
enum AllowedBy<'a> {
    Address(&'a CidrRule),
    Name(&'a DomainRule, &'a DomainName),
    Internet,
}

impl<'a> Judge<'a> {
    pub(super) fn open(self, protocol: Transport) -> Verdict {
        match self.allowing_rule() {
            Err(refusal) => Verdict::Refused(refusal),
            Ok(by) if protocol == Transport::Udp && self.must_be_named(by) => {
                Verdict::Refused(self.hidden("UDP carries no server name", "make the program use TCP"))
            }
            Ok(AllowedBy::Name(..))
                if protocol == Transport::Udp && is_web(self.to.port()) && !self.policy.allow_internet =>
            {
                Verdict::Refused(Refusal::new(
                    RefusalCode::NameHidden,
                    format!(
                        "{} over UDP is QUIC, which hides the server name from the rules about domains; programs \
                         fall back to TCP",
                        self.to
                    ),
                ))
            }
            Ok(by) => self.allowed(by),
        }
    }

    /// The claim is needed whenever a rule about names could change the answer, and for flows that are not allowed at
    /// all, so that nothing leaves without inspection.
    pub(super) fn needs_claim(self) -> bool {
        match self.allowing_rule() {
            Err(_) => true,
            Ok(AllowedBy::Name(..)) => !self.policy.allow_internet || self.denies_names(),
            Ok(AllowedBy::Address(_) | AllowedBy::Internet) => self.denies_names(),
        }
    }

    /// Whether nothing may pass in either direction before the flow has shown a name that can be judged.
    pub(super) fn needs_name(self) -> bool {
        self.allowing_rule().is_ok_and(|by| self.must_be_named(by))
    }

    fn denies_names(self) -> bool {
        self.policy.denies_names_at(self.to.port())
    }

    /// If names are denied, a flow without a visible name might go to one of them. Only a rule for certain addresses is
    /// an exception: its author meant those addresses, whatever their names are.
    fn must_be_named(self, by: AllowedBy<'_>) -> bool {
        let is_exception = match by {
            AllowedBy::Address(rule) => rule.is_narrow(),
            AllowedBy::Name(..) | AllowedBy::Internet => false,
        };
        !is_exception && self.denies_names()
    }

    fn hidden(self, what: &str, help: &str) -> Refusal {
        let to = self.to;
        let message = format!(
            "the server name of the connection to {to} is not visible ({what}) and could be one that deny_domains refuses; \
             {help}, or add {} to allow_cidrs",
            to.ip()
        );
        Refusal::new(RefusalCode::NameHidden, message)
    }

    /// The refusal of a claim that does not prove where the connection goes. `None` for a claim with a valid name.
    fn doubt(self, claim: &Claim, name: Option<&DomainName>) -> Option<Refusal> {
        const SHOW: &str = "make the program use TLS with a server name or HTTP with a host";
        let (what, help) = match claim {
            Claim::Sni(_) | Claim::Host(_) | Claim::GitHost(_) if name.is_some() => return None,
            Claim::Sni(text) | Claim::Host(text) | Claim::GitHost(text) => {
                (format!("{text:?} is not a host name"), "make the program connect by name")
            }
            Claim::Encrypted(_) => (
                "its TLS handshake encrypts the server name, ECH".to_owned(),
                "switch ECH off in the program",
            ),
            Claim::NoSni => ("TLS without a readable server name".to_owned(), SHOW),
            Claim::NoHost => ("HTTP without a readable host".to_owned(), SHOW),
            Claim::NoGitHost => ("git's protocol without a readable host".to_owned(), SHOW),
            Claim::Opaque => ("it is neither TLS nor HTTP nor git".to_owned(), SHOW),
        };
        Some(self.hidden(&what, help))
    }

    pub(super) fn claim(self, claim: &Claim) -> Verdict {
        let by = match self.allowing_rule() {
            Err(refusal) => return Verdict::Refused(refusal),
            Ok(by) => by,
        };
        let (kind, named) = match claim {
            Claim::Sni(name) => ("TLS server name", Some(name)),
            Claim::Host(name) => ("HTTP host", Some(name)),
            Claim::Encrypted(outside) => ("TLS server name", outside.as_ref()),
            Claim::NoSni => ("TLS server name", None),
            Claim::NoHost => ("HTTP host", None),
            Claim::GitHost(name) => ("host of git's request", Some(name)),
            Claim::NoGitHost => ("host of git's request", None),
            Claim::Opaque if !self.must_be_named(by) => return self.allowed(by),
            Claim::Opaque => ("name", None),
        };
        let name = named.and_then(|name| DomainName::from_wire(name).ok());
        if let Some(name) = &name
            && let Some(rule) = self.policy.denies_name_at(name, self.to.port())
        {
            return Verdict::Refused(Refusal::new(
                RefusalCode::DeniedName,
                format!(
                    "the connection to {} names {name} ({kind}), which deny_domains {rule} refuses",
                    self.to
                ),
            ));
        }
        if self.must_be_named(by)
            && let Some(refusal) = self.doubt(claim, name.as_ref())
        {
            return Verdict::Refused(refusal);
        }
        let resolved = match by {
            AllowedBy::Address(_) | AllowedBy::Internet => return self.allowed_as(by, name),
            AllowedBy::Name(_, resolved) => resolved,
        };
        if let Some(name) = &name
            && let Some(rule) = self.policy.allows_name_at(name, self.to.port())
        {
            return self.allowed(AllowedBy::Name(rule, name));
        }
        if self.policy.allow_internet {
            return self.allowed_as(AllowedBy::Internet, name);
        }
        Verdict::Refused(match (name, named) {
            (Some(name), _) => Refusal::new(
                RefusalCode::NameMismatch,
                format!(
                    "{} was resolved from {resolved}, but the connection names {name} ({kind}); add {name} to \
                     allow_domains to allow it",
                    self.to
                ),
            ),
            (None, Some(text)) => Refusal::new(
                RefusalCode::NameMismatch,
                format!(
                    "{} was resolved from {resolved}, but the connection names {text:?} ({kind}); connect by name, or \
                     add {} to allow_cidrs",
                    self.to,
                    self.to.ip()
                ),
            ),
            (None, None) => Refusal::new(
                RefusalCode::NameHidden,
                format!(
                    "the connection to {} carries no {kind}, so it may not go to {resolved}; make the \
                     program send it, or add {} to allow_cidrs",
                    self.to,
                    self.to.ip()
                ),
            ),
        })
    }

    /// The reason that no port of the address can be reached, regardless of names.
    pub(super) fn address_refusal(self) -> Option<Refusal> {
        let address = *self.to.ip();
        if let Some(what) = self.is_unreachable() {
            let message = format!("{address} is {what}, which no workspace can reach");
            return Some(Refusal::new(RefusalCode::Unreachable, message));
        }
        let speaks_of_all = |rule: &&CidrRule| rule.ports().is_all() && rule.network().contains(address);
        if let Some(rule) = self.policy.deny_cidrs.iter().find(speaks_of_all) {
            return Some(Refusal::new(
                RefusalCode::DeniedAddress,
                format!("deny_cidrs {rule} refuses {address}"),
            ));
        }
        let opens = |rule: &CidrRule| rule.is_narrow() && rule.network().contains(address);
        let what = self.is_special()?;
        (!self.policy.allow_cidrs.iter().any(opens)).then(|| {
            let message = format!(
                "{address} is {what}, which needs a rule of its own; add it to allow_cidrs to allow it"
            );
            Refusal::new(RefusalCode::PrivateAddress, message)
        })
    }

    fn is_unreachable(self) -> Option<&'static str> {
        if *self.to.ip() == self.gateway { Some("the gateway itself") } else { unreachable(*self.to.ip()) }
    }

    fn is_special(self) -> Option<&'static str> {
        if self.is_host { Some("an address of the host itself") } else { never_public(*self.to.ip()) }
    }

    /// The destination as text; the address alone for protocols without ports, such as ping.
    fn destination(self) -> String {
        if self.to.port() == 0 { self.to.ip().to_string() } else { self.to.to_string() }
    }

    /// The first rule that allows the flow, in the order that the policy documents.
    fn allowing_rule(self) -> Result<AllowedBy<'a>, Refusal> {
        let (address, port) = (*self.to.ip(), self.to.port());
        if let Some(what) = self.is_unreachable() {
            let message = format!("{} is {what}, which no workspace can reach", self.destination());
            return Err(Refusal::new(RefusalCode::Unreachable, message));
        }
        if let Some(rule) = self.policy.denies_address(address, port) {
            let message = format!("deny_cidrs {rule} refuses {}", self.destination());
            return Err(Refusal::new(RefusalCode::DeniedAddress, message));
        }
        // Many names can share an address, so it is denied by name only if all its names are denied.
        let denied = |name: &DomainName| self.policy.denies_name_at(name, port);
        if let Some(name) = self.names.first()
            && let Some(rule) = denied(name)
            && self.names.iter().all(|name| denied(name).is_some())
        {
            let message =
                format!("deny_domains {rule} refuses {name}, which {} was resolved from", self.destination());
            return Err(Refusal::new(RefusalCode::DeniedName, message));
        }
        let special = self.is_special();
        if let Some(rule) = self
            .policy
            .allow_cidrs
            .iter()
            .find(|rule| rule.matches(address, port) && (special.is_none() || rule.is_narrow()))
        {
            return Ok(AllowedBy::Address(rule));
        }
        if let Some(what) = special {
            let destination = self.destination();
            let message = format!(
                "{destination} is {what}, which needs a rule of its own; add {destination} to allow_cidrs to allow it"
            );
            return Err(Refusal::new(RefusalCode::PrivateAddress, message));
        }
        for name in self.names.iter().filter(|name| denied(name).is_none()) {
            if let Some(rule) = self.policy.allows_name_at(name, port) {
                return Ok(AllowedBy::Name(rule, name));
            }
        }
        if self.policy.allow_internet {
            return Ok(AllowedBy::Internet);
        }
        Err(self.not_allowed())
    }

    fn not_allowed(self) -> Refusal {
        let (address, port) = (*self.to.ip(), self.to.port());
        let other_port = self.names.iter().find_map(|name| Some((name, self.policy.allows_name(name)?)));
        if let Some((name, rule)) = other_port {
            let message = format!(
                "allow_domains {rule} does not allow port {port} of {name}; add {name}:{port} to allow_domains"
            );
            return Refusal::new(RefusalCode::PortNotAllowed, message);
        }
        if let Some(name) = self.names.first() {
            let message =
                format!("{name} ({}) is not allowed; add {name} to allow_domains", self.destination());
            return Refusal::new(RefusalCode::NameNotAllowed, message);
        }
        let message = if self.policy.allow_domains.is_empty() {
            format!(
                "{} is not allowed: this workspace has no internet; set allow_internet, or add a name to \
                 allow_domains or {address} to allow_cidrs",
                self.destination()
            )
        } else {
            format!(
                "{} is not allowed: no name in allow_domains was resolved to it; connect by name, or add {address} to \
                 allow_cidrs",
                self.destination()
            )
        };
        Refusal::new(RefusalCode::NotAllowed, message)
    }

    fn allowed(self, by: AllowedBy<'_>) -> Verdict {
        self.allowed_as(by, None)
    }

    fn allowed_as(self, by: AllowedBy<'_>, named: Option<DomainName>) -> Verdict {
        let known = named.as_ref().or_else(|| self.names.first());
        let (rule, name) = match by {
            AllowedBy::Address(rule) => (format!("allow_cidrs {rule}"), known),
            AllowedBy::Name(rule, name) => (format!("allow_domains {rule}"), Some(name)),
            AllowedBy::Internet => ("allow_internet".to_owned(), known),
        };
        Verdict::Allowed { rule, name: name.map(ToString::to_string) }
    }
}

/// Whether the guest may look up this name.
pub(super) fn name(policy: &NetworkPolicy, name: &DomainName) -> Verdict {
    if let Some(rule) = policy.denies_name(name) {
        let message = format!("deny_domains {rule} refuses {name}");
        return Verdict::Refused(Refusal::new(RefusalCode::DeniedName, message));
    }
    if let Some(rule) = policy.allows_name(name) {
        return Verdict::Allowed { rule: format!("allow_domains {rule}"), name: Some(name.to_string()) };
    }
    if policy.allow_internet {
        return Verdict::Allowed { rule: "allow_internet".to_owned(), name: Some(name.to_string()) };
    }
    let why =
        if policy.allow_domains.is_empty() { "this workspace has no internet" } else { "it is not listed" };
    let message = format!("{name} is not allowed: {why}; add {name} to allow_domains or set allow_internet");
    Verdict::Refused(Refusal::new(RefusalCode::NameNotAllowed, message))
}

/// Ports of the web, which QUIC uses over UDP.
fn is_web(port: u16) -> bool {
    matches!(port, 80 | 443)
}
