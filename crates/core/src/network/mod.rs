//! The network policy of a workspace: which flows are allowed.
//!
//! Clients write a policy, the daemon keeps it and the network backends apply it. A [`NetworkPolicy`] is always valid.
//! A client writes a [`PolicyChange`], in which every field may be absent and every rule is still text. Applying it to
//! a policy gives a new policy, or all problems at once.
//!
//! A destination is judged by the first of these rules that matches:
//!
//! ```text
//! loopback, the gateway itself            refused, whatever the policy says
//! deny_cidrs, deny_domains                refused
//! allow_cidrs                             allowed
//! private, shared and host addresses      refused
//! an address of a name in allow_domains   allowed, if the connection names it too
//! allow_internet                          allowed
//! anything else                           refused
//! ```

mod change;
mod cidr;
mod domain;
mod policy;
mod ports;
mod problems;
mod ranges;

pub use change::PolicyChange;
pub use cidr::{CidrRule, Network};
pub use domain::{DomainName, DomainRule};
pub use policy::{MAX_BANDWIDTH_MBPS, MAX_POLICY_TEXT, MAX_RULES, NetworkPolicy};
pub use ports::{MAX_PORTS_PER_RULE, RulePorts};
pub use problems::{PolicyProblem, PolicyProblems};
pub use ranges::{NARROW_PREFIX, never_public, never_public_networks, unreachable, unreachable_networks};
