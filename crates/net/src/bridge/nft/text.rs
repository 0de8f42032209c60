//! Formats a table as `nft list ruleset` shows it.

use std::fmt::{self, Display, Formatter};

use super::table::{Chain, ChainKind, Element, Family, HookPoint, NAME, Rule, Set, SetKind, Table};
use super::terms::{Action, Field, Match};

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {NAME} {{", self.family)?;
        for set in &self.sets {
            set.fmt(f)?;
        }
        for chain in &self.chains {
            chain.fmt(f)?;
        }
        writeln!(f, "}}")
    }
}

impl Display for Family {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Bridge => "bridge",
            Self::Inet => "inet",
        })
    }
}

impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let timed = if self.timed { " flags timeout;" } else { "" };
        let name = &self.name;
        let (kind, elements): (&str, Vec<String>) = match &self.kind {
            SetKind::Ports(ports) => {
                ("set type inet_service;", ports.iter().map(ToString::to_string).collect())
            }
            SetKind::Addresses(elements) => {
                ("set type ipv4_addr;", elements.iter().map(|element| timeout(element, false)).collect())
            }
            SetKind::Endpoints(elements) => (
                "set type ipv4_addr . inet_service;",
                elements.iter().map(|element| timeout(element, true)).collect(),
            ),
            SetKind::ByAddress(elements) => (
                "map type ipv4_addr : verdict;",
                elements.iter().map(|(address, target)| format!("{address} : goto {}", target.0)).collect(),
            ),
            SetKind::ByInterface(elements) => (
                "map type ifname : verdict;",
                elements.iter().map(|(name, target)| format!("\"{name}\" : goto {}", target.0)).collect(),
            ),
            SetKind::Counts { most } => {
                let keys = "ipv4_addr . inet_service . inet_service . inet_proto . mark";
                return writeln!(f, "\tset {name} {{ type {keys}; size {most}; flags dynamic,timeout; }}");
            }
        };
        let (word, kind) = kind.split_once(' ').unwrap_or((kind, ""));
        writeln!(f, "\t{word} {name} {{ {kind}{timed} elements = {{ {} }} }}", elements.join(", "))
    }
}

fn timeout(element: &Element, with_port: bool) -> String {
    let mut text = element.address.to_string();
    if with_port {
        text += &format!(" . {}", element.port);
    }
    if let Some(left) = element.left {
        text += &format!(" timeout {}s", left.as_secs());
    }
    text
}

impl Display for Chain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        if let Some(hook) = self.hook {
            let kind = match hook.kind {
                ChainKind::Filter => "filter",
                ChainKind::Nat => "nat",
            };
            let at = match hook.at {
                HookPoint::Prerouting => "prerouting",
                HookPoint::Forward => "forward",
                HookPoint::Output => "output",
                HookPoint::Postrouting => "postrouting",
            };
            writeln!(f, "\t\ttype {kind} hook {at} priority {}; policy accept;", hook.priority)?;
        }
        for rule in &self.rules {
            writeln!(f, "\t\t{rule}")?;
        }
        writeln!(f, "\t}}")
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for condition in &self.matches {
            write!(f, "{condition} ")?;
        }
        self.action.fmt(f)
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InInterface => "iifname",
            Self::OutInterface => "oifname",
            Self::EtherSource => "ether saddr",
            Self::EtherType => "ether type",
            Self::ArpFormat => "@nh,0,48",
            Self::ArpSenderMac => "arp saddr ether",
            Self::ArpSenderAddress => "arp saddr ip",
            Self::SourceAddress => "ip saddr",
            Self::TargetAddress => "ip daddr",
            Self::Family => "meta nfproto",
            Self::Protocol => "meta l4proto",
            Self::SourcePort => "th sport",
            Self::TargetPort => "th dport",
            Self::IcmpType => "icmp type",
            Self::TcpFlags => "@th,96,16",
            Self::Direction => "ct direction",
            Self::State => "ct state",
            Self::TargetKind => "fib daddr type",
        })
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(field, value) => write!(f, "{field} {}", value.text),
            Self::IsNot(field, value) => write!(f, "{field} != {}", value.text),
            Self::Within(field, network) => write!(f, "{field} {network}"),
            Self::Among(field, set) => write!(f, "{field} @{set}"),
            Self::PairAmong(first, second, set) => write!(f, "{first} . {second} @{set}"),
            Self::NotCounted(tuple, set) => write!(f, "{tuple} != @{set}"),
            Self::Counted { tuple, set, forgotten } => {
                write!(f, "update @{set} {{ {tuple} timeout {}s counter }}", forgotten.as_secs())
            }
            Self::TooFast { frames, burst } => {
                write!(f, "limit rate over {frames}/second burst {burst} packets")
            }
            Self::AtMost { packets } => write!(f, "limit rate {packets}/second burst {packets} packets"),
            Self::TooMany { connections } => write!(f, "ct count over {connections}"),
            Self::Beyond { bytes, burst } => {
                write!(f, "limit rate over {bytes} bytes/second burst {burst} bytes")
            }
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Follow(field, map) => write!(f, "{field} vmap @{map}"),
            Self::Reset => f.write_str("reject with tcp reset"),
            Self::Prohibit => f.write_str("reject with icmp admin-prohibited"),
            Self::Log { group } => write!(f, "log group {group}"),
            Self::Masquerade => f.write_str("masquerade"),
            Self::Redirect { port } => write!(f, "redirect to :{port}"),
            Self::Return => f.write_str("return"),
        }
    }
}
