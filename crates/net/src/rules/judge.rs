//! The decision itself: a function of the policy, the destination and the names it is known by.

use std::net::{Ipv4Addr, SocketAddrV4};

use agentiso_core::network::{CidrRule, DomainName, DomainRule, NetworkPolicy, never_public, unreachable};

use super::verdict::{Refusal, RefusalCode, Transport, Verdict};
use crate::sniff::Claim;

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

/// What lets a flow pass, before its first bytes are known.
#[derive(Clone, Copy, Debug)]
enum Ground<'a> {
    Address(&'a CidrRule),
    Name(&'a DomainRule, &'a DomainName),
    Internet,
}

impl<'a> Judge<'a> {
    pub(super) fn open(self, protocol: Transport) -> Verdict {
        match self.ground() {
            Err(refusal) => Verdict::Refused(refusal),
            Ok(ground) if protocol == Transport::Udp && self.must_be_named(ground) => {
                Verdict::Refused(self.hidden("datagrams name nobody", "let the program use TCP"))
            }
            Ok(Ground::Name(..))
                if protocol == Transport::Udp && is_web(self.to.port()) && !self.policy.allow_internet =>
            {
                Verdict::Refused(Refusal::new(
                    RefusalCode::NameHidden,
                    format!(
                        "{} over UDP is QUIC, which hides the name it goes to from the rules about domains; programs \
                         fall back to TCP",
                        self.to
                    ),
                ))
            }
            Ok(ground) => self.allowed(ground),
        }
    }

    /// Names decide whenever a rule about names could change the answer. What is not allowed at all is not let out
    /// unseen either.
    pub(super) fn needs_claim(self) -> bool {
        match self.ground() {
            Err(_) => true,
            Ok(Ground::Name(..)) => !self.policy.allow_internet || self.denies_names(),
            Ok(Ground::Address(_) | Ground::Internet) => self.denies_names(),
        }
    }

    /// Whether nothing may pass, either way, before the flow has shown a name that can be judged.
    pub(super) fn needs_name(self) -> bool {
        self.ground().is_ok_and(|ground| self.must_be_named(ground))
    }

    fn denies_names(self) -> bool {
        self.policy.denies_names_at(self.to.port())
    }

    /// Where names are denied, a flow whose name cannot be seen might go to one of them. Only a rule for certain
    /// addresses is an exception: who wrote it meant those addresses, whatever they are called.
    fn must_be_named(self, ground: Ground<'_>) -> bool {
        let is_exception = match ground {
            Ground::Address(rule) => rule.is_narrow(),
            Ground::Name(..) | Ground::Internet => false,
        };
        !is_exception && self.denies_names()
    }

    fn hidden(self, what: &str, help: &str) -> Refusal {
        let to = self.to;
        let message = format!(
            "nobody can see which name {to} is reached by ({what}), and it could be one that deny_domains refuses; {help}, or \
             add {} to allow_cidrs",
            to.ip()
        );
        Refusal::new(RefusalCode::NameHidden, message)
    }

    /// Why the claim does not say for certain where the connection goes.
    fn doubt(self, claim: &Claim, name: Option<&DomainName>) -> Option<Refusal> {
        const SHOW: &str = "let the program use TLS with a server name or HTTP with a host";
        let (what, help) = match claim {
            Claim::Sni(_) | Claim::Host(_) | Claim::GitHost(_) if name.is_some() => return None,
            Claim::Sni(text) | Claim::Host(text) | Claim::GitHost(text) => {
                (format!("{text:?} is no name"), "let the program connect by name")
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
        let ground = match self.ground() {
            Err(refusal) => return Verdict::Refused(refusal),
            Ok(ground) => ground,
        };
        let (kind, named) = match claim {
            Claim::Sni(name) => ("TLS server name", Some(name)),
            Claim::Host(name) => ("HTTP host", Some(name)),
            Claim::Encrypted(outside) => ("TLS server name", outside.as_ref()),
            Claim::NoSni => ("TLS server name", None),
            Claim::NoHost => ("HTTP host", None),
            Claim::GitHost(name) => ("host of git's request", Some(name)),
            Claim::NoGitHost => ("host of git's request", None),
            Claim::Opaque if !self.must_be_named(ground) => return self.allowed(ground),
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
        if self.must_be_named(ground)
            && let Some(refusal) = self.doubt(claim, name.as_ref())
        {
            return Verdict::Refused(refusal);
        }
        let resolved = match ground {
            Ground::Address(_) | Ground::Internet => return self.allowed_as(ground, name),
            Ground::Name(_, resolved) => resolved,
        };
        if let Some(name) = &name
            && let Some(rule) = self.policy.allows_name_at(name, self.to.port())
        {
            return self.allowed(Ground::Name(rule, name));
        }
        if self.policy.allow_internet {
            return self.allowed_as(Ground::Internet, name);
        }
        Verdict::Refused(match (name, named) {
            (Some(name), _) => Refusal::new(
                RefusalCode::NameMismatch,
                format!(
                    "{} was resolved from {resolved}, but the connection names {name} ({kind}); add {name} to \
                     allow_domains if that is meant",
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
                    "the connection to {} carries no {kind}, so nobody can tell that it goes to {resolved}; let the \
                     program send it, or add {} to allow_cidrs",
                    self.to,
                    self.to.ip()
                ),
            ),
        })
    }

    /// Why no port of the address could ever be reached, names aside.
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
                "{address} is {what}, which only a rule for it opens; add it to allow_cidrs if meant"
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

    /// The destination in words. Without ports, as in a ping, the address alone.
    fn place(self) -> String {
        if self.to.port() == 0 { self.to.ip().to_string() } else { self.to.to_string() }
    }

    /// The first rule that fits, as the policy's own description orders them.
    fn ground(self) -> Result<Ground<'a>, Refusal> {
        let (address, port) = (*self.to.ip(), self.to.port());
        if let Some(what) = self.is_unreachable() {
            let message = format!("{} is {what}, which no workspace can reach", self.place());
            return Err(Refusal::new(RefusalCode::Unreachable, message));
        }
        if let Some(rule) = self.policy.denies_address(address, port) {
            let message = format!("deny_cidrs {rule} refuses {}", self.place());
            return Err(Refusal::new(RefusalCode::DeniedAddress, message));
        }
        // An address is shared by many names; it is denied by name if no name is left under which it may be reached.
        let denied = |name: &DomainName| self.policy.denies_name_at(name, port);
        if let Some(name) = self.names.first()
            && let Some(rule) = denied(name)
            && self.names.iter().all(|name| denied(name).is_some())
        {
            let message =
                format!("deny_domains {rule} refuses {name}, which {} was resolved from", self.place());
            return Err(Refusal::new(RefusalCode::DeniedName, message));
        }
        let special = self.is_special();
        if let Some(rule) = self
            .policy
            .allow_cidrs
            .iter()
            .find(|rule| rule.matches(address, port) && (special.is_none() || rule.is_narrow()))
        {
            return Ok(Ground::Address(rule));
        }
        if let Some(what) = special {
            let place = self.place();
            let message = format!(
                "{place} is {what}, which only a rule for it opens; add {place} to allow_cidrs if it is meant"
            );
            return Err(Refusal::new(RefusalCode::PrivateAddress, message));
        }
        for name in self.names.iter().filter(|name| denied(name).is_none()) {
            if let Some(rule) = self.policy.allows_name_at(name, port) {
                return Ok(Ground::Name(rule, name));
            }
        }
        if self.policy.allow_internet {
            return Ok(Ground::Internet);
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
            let message = format!("{name} ({}) is not allowed; add {name} to allow_domains", self.place());
            return Refusal::new(RefusalCode::NameNotAllowed, message);
        }
        let message = if self.policy.allow_domains.is_empty() {
            format!(
                "{} is not allowed: this workspace has no internet; set allow_internet, or add a name to \
                 allow_domains or {address} to allow_cidrs",
                self.place()
            )
        } else {
            format!(
                "{} is not allowed: no name in allow_domains was resolved to it; connect by name, or add {address} to \
                 allow_cidrs",
                self.place()
            )
        };
        Refusal::new(RefusalCode::NotAllowed, message)
    }

    fn allowed(self, ground: Ground<'_>) -> Verdict {
        self.allowed_as(ground, None)
    }

    fn allowed_as(self, ground: Ground<'_>, named: Option<DomainName>) -> Verdict {
        let known = named.as_ref().or_else(|| self.names.first());
        let (rule, name) = match ground {
            Ground::Address(rule) => (format!("allow_cidrs {rule}"), known),
            Ground::Name(rule, name) => (format!("allow_domains {rule}"), Some(name)),
            Ground::Internet => ("allow_internet".to_owned(), known),
        };
        Verdict::Allowed { rule, name: name.map(ToString::to_string) }
    }
}

/// May this name be asked for?
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

/// Ports at which the web is served, over UDP too.
fn is_web(port: u16) -> bool {
    matches!(port, 80 | 443)
}
