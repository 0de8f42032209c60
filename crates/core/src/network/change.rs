//! A change to a policy as clients write it: every field may be absent, and rules are still text.

use serde::{Deserialize, Deserializer, Serialize};

use super::cidr::CidrRule;
use super::domain::DomainRule;
use super::policy::{MAX_BANDWIDTH_MBPS, MAX_RULES, NetworkPolicy};
use super::problems::{Findings, PolicyProblems};
use super::ranges::unreachable_network;

/// A change to a policy. Absent fields keep their values; a given list replaces the whole list.
///
/// Number types are wider than the valid range, so that a bad number is reported with the other problems instead of
/// ending the parsing. An unknown field is an error: ignoring a misspelt `deny_cidrs` would allow what was to be
/// denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_internet: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_inter_vm: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_ports: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_domains: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny_domains: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_cidrs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny_cidrs: Option<Vec<String>>,
    /// `null` removes the limit; an absent field keeps it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub bandwidth_mbps: Option<Option<i64>>,
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl PolicyChange {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The policy after this change, or all problems of the change.
    pub fn apply_to(&self, policy: &NetworkPolicy) -> Result<NetworkPolicy, PolicyProblems> {
        let mut findings = Findings::default();
        let mut next = policy.clone();
        next.allow_internet = self.allow_internet.unwrap_or(next.allow_internet);
        next.allow_inter_vm = self.allow_inter_vm.unwrap_or(next.allow_inter_vm);
        if let Some(ports) = &self.allowed_ports {
            next.allowed_ports = list("allowed_ports", ports, &mut findings, parse_port);
        }
        if let Some(rules) = &self.allow_domains {
            next.allow_domains = list("allow_domains", rules, &mut findings, |text| DomainRule::parse(text));
        }
        if let Some(rules) = &self.deny_domains {
            next.deny_domains = list("deny_domains", rules, &mut findings, |text| DomainRule::parse(text));
        }
        if let Some(rules) = &self.allow_cidrs {
            next.allow_cidrs = list("allow_cidrs", rules, &mut findings, |text| parse_allowed_cidr(text));
        }
        if let Some(rules) = &self.deny_cidrs {
            next.deny_cidrs = list("deny_cidrs", rules, &mut findings, |text| CidrRule::parse(text));
        }
        if let Some(limit) = self.bandwidth_mbps {
            let in_range =
                |limit| u32::try_from(limit).ok().filter(|mbps| (1..=MAX_BANDWIDTH_MBPS).contains(mbps));
            next.bandwidth_mbps = limit.and_then(in_range);
            if limit.is_some() && next.bandwidth_mbps.is_none() {
                let message = format!("must be between 1 and {MAX_BANDWIDTH_MBPS}, or null for no limit");
                findings.add("bandwidth_mbps", message);
            }
        }
        findings.into_result()?;
        Ok(next)
    }
}

/// Parses every item and leaves out duplicates.
fn list<T, R: PartialEq>(
    field: &str,
    items: &[T],
    findings: &mut Findings,
    parse: impl Fn(&T) -> Result<R, String>,
) -> Vec<R> {
    if items.len() > MAX_RULES {
        findings.add(field, format!("has {} entries; at most {MAX_RULES} are allowed", items.len()));
        return Vec::new();
    }
    let mut parsed = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match parse(item) {
            Ok(rule) if parsed.contains(&rule) => {}
            Ok(rule) => parsed.push(rule),
            Err(message) => findings.add(format!("{field}[{index}]"), message),
        }
    }
    parsed
}

fn parse_port(port: &i64) -> Result<u16, String> {
    u16::try_from(*port)
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| format!("{port} is not a port; ports are numbers from 1 to 65535"))
}

fn parse_allowed_cidr(text: &str) -> Result<CidrRule, String> {
    let rule = CidrRule::parse(text)?;
    match unreachable_network(&rule.network()) {
        None => Ok(rule),
        Some(what) => Err(format!(
            "{rule} is {what}, which no workspace can reach; let the service listen on another address of the host \
             and allow that one"
        )),
    }
}

impl From<NetworkPolicy> for PolicyChange {
    fn from(policy: NetworkPolicy) -> Self {
        fn texts<T: ToString>(rules: &[T]) -> Option<Vec<String>> {
            Some(rules.iter().map(T::to_string).collect())
        }
        Self {
            allow_internet: Some(policy.allow_internet),
            allow_inter_vm: Some(policy.allow_inter_vm),
            allowed_ports: Some(policy.allowed_ports.iter().copied().map(i64::from).collect()),
            allow_domains: texts(&policy.allow_domains),
            deny_domains: texts(&policy.deny_domains),
            allow_cidrs: texts(&policy.allow_cidrs),
            deny_cidrs: texts(&policy.deny_cidrs),
            bandwidth_mbps: Some(policy.bandwidth_mbps.map(i64::from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn policy(value: serde_json::Value) -> Result<NetworkPolicy, serde_json::Error> {
        serde_json::from_value(value)
    }

    #[test]
    fn overlong_policies_are_refused() {
        let rule = |number: usize| format!("{number:04}{}.{}.example", "x".repeat(58), "y".repeat(62));
        let rules = |from: usize| Some((from..from + MAX_RULES).map(rule).collect());
        let half = PolicyChange { allow_domains: rules(0), ..PolicyChange::default() };
        let policy = half.apply_to(&NetworkPolicy::default()).unwrap();
        assert_eq!(policy.check_length(), Ok(()));
        let whole = PolicyChange { deny_domains: rules(MAX_RULES), ..PolicyChange::default() };
        let policy = whole.apply_to(&policy).unwrap();
        assert!(policy.check_length().unwrap_err().to_string().contains("65536"));
    }

    #[test]
    fn empty_policy_denies_all_and_serializes_fully() {
        let empty = policy(json!({})).unwrap();
        assert_eq!(empty, NetworkPolicy::default());
        let written = serde_json::to_value(&empty).unwrap();
        let expected = json!({
            "allow_internet": false, "allow_inter_vm": false, "allowed_ports": [], "allow_domains": [],
            "deny_domains": [], "allow_cidrs": [], "deny_cidrs": [], "bandwidth_mbps": null,
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn all_policy_problems_are_reported_with_paths() {
        let change: PolicyChange = serde_json::from_value(json!({
            "allowed_ports": [80, 0, 70000, -1],
            "allow_domains": ["example.com", "*", "a b"],
            "deny_domains": [""],
            "allow_cidrs": ["127.0.0.1:5432", "0.0.0.0", "10.0.0.0/8", "10.0.0.1/8"],
            "deny_cidrs": ["x"],
            "bandwidth_mbps": 0,
        }))
        .unwrap();
        let problems = change.apply_to(&NetworkPolicy::default()).unwrap_err();
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        let expected = [
            "allowed_ports[1]",
            "allowed_ports[2]",
            "allowed_ports[3]",
            "allow_domains[1]",
            "allow_domains[2]",
            "deny_domains[0]",
            "allow_cidrs[0]",
            "allow_cidrs[1]",
            "allow_cidrs[3]",
            "deny_cidrs[0]",
            "bandwidth_mbps",
        ];
        assert_eq!(paths, expected);
        let text = problems.to_string();
        assert!(text.contains("allow_cidrs[0]: 127.0.0.1:5432 is the host's loopback"), "{text}");
    }

    #[test]
    fn policy_change_keeps_unnamed_fields() {
        let old = policy(json!({
            "allow_internet": true, "allowed_ports": [80], "allow_domains": ["A.example.com."], "bandwidth_mbps": 10,
        }))
        .unwrap();
        let change: PolicyChange = serde_json::from_value(json!({"allow_inter_vm": true})).unwrap();
        let next = change.apply_to(&old).unwrap();
        assert_eq!(next, NetworkPolicy { allow_inter_vm: true, ..old.clone() });
        let lift: PolicyChange = serde_json::from_value(json!({"bandwidth_mbps": null})).unwrap();
        assert_eq!(lift.apply_to(&old).unwrap().bandwidth_mbps, None);
        assert!(PolicyChange::default().is_empty() && !lift.is_empty());
    }

    #[test]
    fn policy_lists_are_bounded_ordered_and_unique() {
        let many: Vec<String> = (0..=MAX_RULES).map(|n| format!("h{n}.example.com")).collect();
        assert!(policy(json!({"allow_domains": many})).unwrap_err().to_string().contains("at most 256"));
        assert!(policy(json!({"deny_domains": many[1..]})).is_ok());
        let twice = policy(json!({"allow_domains": ["b.com", "a.com", "B.com."]})).unwrap();
        let names: Vec<String> = twice.allow_domains.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["b.com", "a.com"]);
    }

    #[test]
    fn misspelt_policy_field_is_refused() {
        assert!(
            policy(json!({"deny_domain": ["example.com"]})).unwrap_err().to_string().contains("deny_domain")
        );
    }

    proptest! {
        #[test]
        fn policy_survives_serialization(
            allow_internet: bool, allow_inter_vm: bool,
            ports in prop::collection::vec(1_i64..=65535, 0..4),
            allow in prop::collection::vec("(\\*\\.)?[a-z]{1,5}\\.[a-z]{2,4}(:[1-9][0-9]{0,3})?", 0..4),
            deny in prop::collection::vec("(\\*\\.)?[a-z]{1,5}\\.[a-z]{2,4}", 0..4),
            cidrs in prop::collection::vec("10\\.[1-9]\\.[1-9]\\.[1-9](:[1-9][0-9]{0,3})?", 0..4),
            mbps in prop::option::of(1_i64..=100_000),
        ) {
            let change = PolicyChange {
                allow_internet: Some(allow_internet), allow_inter_vm: Some(allow_inter_vm),
                allowed_ports: Some(ports), allow_domains: Some(allow), deny_domains: Some(deny),
                allow_cidrs: Some(cidrs.clone()), deny_cidrs: Some(cidrs), bandwidth_mbps: Some(mbps),
            };
            let policy = change.apply_to(&NetworkPolicy::default()).unwrap();
            let text = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<NetworkPolicy>(&text).unwrap(), policy.clone());
            prop_assert_eq!(PolicyChange::default().apply_to(&policy).unwrap(), policy);
        }
    }
}
