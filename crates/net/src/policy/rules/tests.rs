//! Decisions of a guard for given policies and destinations.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use agentiso_core::network::{DomainName, NetworkPolicy, never_public};
use proptest::prelude::*;
use serde_json::json;

use super::bindings::GRACE;
use super::*;
use crate::policy::sniff::Claim;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(8, 8, 4, 4);
const TTL: Duration = Duration::from_secs(60);

fn policy(value: serde_json::Value) -> NetworkPolicy {
    serde_json::from_value(value).unwrap()
}

fn guard(value: serde_json::Value) -> Guard {
    Guard::new(policy(value), HostAddresses::fixed([HOST]), GATEWAY)
}

fn to(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn name(text: &str) -> DomainName {
    DomainName::parse(text).unwrap()
}

fn refusal(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refused(refusal) => refusal,
        Verdict::Allowed { rule, name } => panic!("allowed by {rule} as {name:?}"),
    }
}

fn tcp(guard: &Guard, text: &str) -> Verdict {
    guard.judge(Transport::Tcp, to(text))
}

fn code(guard: &Guard, text: &str) -> RefusalCode {
    refusal(tcp(guard, text)).code
}

fn rule(verdict: Verdict) -> (String, Option<String>) {
    match verdict {
        Verdict::Allowed { rule, name } => (rule, name),
        Verdict::Refused(refusal) => panic!("refused: {refusal}"),
    }
}

#[test]
fn default_policy_refuses_with_advice() {
    let guard = guard(json!({}));
    let refused = refusal(tcp(&guard, "1.2.3.4:443"));
    assert_eq!(refused.code, RefusalCode::NotAllowed);
    for word in ["1.2.3.4:443", "allow_internet", "allow_domains", "allow_cidrs"] {
        assert!(refused.message.contains(word), "{refused}");
    }
    assert!(!guard.judge_name(&name("example.com")).is_allowed());
    for address in ["1.2.3.4:0", "10.0.0.1:0", "127.0.0.1:0"] {
        let refused = refusal(guard.judge(Transport::Icmp, to(address)));
        assert!(!refused.message.contains(":0"), "{refused}");
    }
}

#[test]
fn internet_excludes_private_addresses_and_the_host() {
    let guard = guard(json!({"allow_internet": true}));
    assert_eq!(rule(tcp(&guard, "1.2.3.4:443")), ("allow_internet".to_owned(), None));
    for address in ["10.0.0.1:80", "169.254.169.254:80", "192.168.1.1:53", "100.64.0.1:1", "8.8.4.4:22"] {
        assert_eq!(code(&guard, address), RefusalCode::PrivateAddress, "{address}");
    }
    for address in ["127.0.0.1:80", "0.0.0.0:80", "10.42.0.1:80", "255.255.255.255:67"] {
        assert_eq!(code(&guard, address), RefusalCode::Unreachable, "{address}");
    }
    assert!(!guard.needs_claim(to("1.2.3.4:443"), None));
}

#[test]
fn cidr_rule_never_opens_loopback_or_gateway() {
    let guard = guard(json!({"allow_cidrs": ["10.0.0.0/8:5432", "8.8.4.4:22"]}));
    assert_eq!(rule(tcp(&guard, "10.1.1.1:5432")).0, "allow_cidrs 10.0.0.0/8:5432");
    assert!(tcp(&guard, "8.8.4.4:22").is_allowed());
    assert_eq!(code(&guard, "10.1.1.1:80"), RefusalCode::PrivateAddress);
    assert_eq!(code(&guard, "10.42.0.1:5432"), RefusalCode::Unreachable);
    assert_eq!(code(&guard, "127.0.0.1:5432"), RefusalCode::Unreachable);
}

#[test]
fn wide_cidr_rule_opens_no_private_address() {
    let guard = guard(json!({"allow_cidrs": ["0.0.0.0/0:443"]}));
    assert!(tcp(&guard, "1.2.3.4:443").is_allowed());
    assert_eq!(code(&guard, "192.168.1.1:443"), RefusalCode::PrivateAddress);
    assert_eq!(code(&guard, "8.8.4.4:443"), RefusalCode::PrivateAddress);
    assert_eq!(code(&guard, "127.0.0.1:443"), RefusalCode::Unreachable);
}

#[test]
fn deny_rules_outrank_allow_rules() {
    let guard = guard(json!({
        "allow_internet": true, "allow_cidrs": ["1.2.3.0/24"], "allow_domains": ["a.example.com"],
        "deny_cidrs": ["1.2.3.4", "5.0.0.0/8:25"], "deny_domains": ["*.bad.com", "a.example.com:8080"],
    }));
    assert_eq!(code(&guard, "1.2.3.4:80"), RefusalCode::DeniedAddress);
    assert!(tcp(&guard, "1.2.3.5:80").is_allowed());
    assert_eq!(code(&guard, "5.1.1.1:25"), RefusalCode::DeniedAddress);
    assert!(tcp(&guard, "5.1.1.1:443").is_allowed());
    assert!(!guard.judge_name(&name("x.bad.com")).is_allowed());
    assert!(guard.judge_name(&name("bad.com")).is_allowed());
    // Denied on one port only: the name resolves, but the port cannot be opened.
    assert!(guard.judge_name(&name("a.example.com")).is_allowed());
    guard.bind(&name("a.example.com"), Ipv4Addr::new(9, 9, 9, 9), TTL);
    assert_eq!(code(&guard, "9.9.9.9:8080"), RefusalCode::DeniedName);
    assert!(tcp(&guard, "9.9.9.9:443").is_allowed());
}

#[test]
fn resolving_an_allowed_name_opens_its_address() {
    let guard = guard(json!({"allow_domains": ["example.com:443"]}));
    let refused = refusal(tcp(&guard, "9.9.9.9:443"));
    assert!(refused.message.contains("connect by name"), "{refused}");
    guard.bind(&name("example.com"), Ipv4Addr::new(9, 9, 9, 9), TTL);
    let allowed = rule(tcp(&guard, "9.9.9.9:443"));
    assert_eq!(allowed, ("allow_domains example.com:443".to_owned(), Some("example.com".to_owned())));
    let refused = refusal(tcp(&guard, "9.9.9.9:80"));
    assert_eq!(refused.code, RefusalCode::PortNotAllowed);
    assert!(refused.message.contains("example.com:80"), "{refused}");
    assert_eq!(code(&guard, "9.9.9.8:443"), RefusalCode::NotAllowed);
}

#[test]
fn name_never_opens_a_private_address() {
    let guard = guard(json!({"allow_internet": true, "allow_domains": ["example.com"]}));
    guard.bind(&name("example.com"), Ipv4Addr::new(192, 168, 1, 1), TTL);
    guard.bind(&name("example.com"), HOST, TTL);
    assert_eq!(code(&guard, "192.168.1.1:80"), RefusalCode::PrivateAddress);
    assert_eq!(code(&guard, "8.8.4.4:80"), RefusalCode::PrivateAddress);
    assert!(guard.address_refusal(HOST).is_some());
    assert_eq!(guard.address_refusal(Ipv4Addr::new(9, 9, 9, 9)), None);
    guard.set_policy(policy(json!({"allow_cidrs": ["192.168.1.1:80"], "deny_cidrs": ["9.9.9.9"]})));
    assert_eq!(guard.address_refusal(Ipv4Addr::new(192, 168, 1, 1)), None);
    assert!(guard.address_refusal(Ipv4Addr::new(9, 9, 9, 9)).is_some());
}

#[test]
fn connection_must_name_an_allowed_domain() {
    let guard = guard(json!({"allow_domains": ["example.com", "*.example.org:443"]}));
    let there = to("9.9.9.9:443");
    guard.bind(&name("example.com"), *there.ip(), TTL);
    assert!(guard.needs_claim(there, None));
    let claimed = |claim: &Claim| guard.rejudge_claim(there, None, claim);
    assert!(claimed(&Claim::Sni("EXAMPLE.com".to_owned())).is_allowed());
    let other = rule(claimed(&Claim::Sni("a.example.org".to_owned())));
    assert_eq!(other, ("allow_domains *.example.org:443".to_owned(), Some("a.example.org".to_owned())));
    assert!(claimed(&Claim::Opaque).is_allowed());
    let evil = refusal(claimed(&Claim::Sni("evil.com".to_owned())));
    assert_eq!(evil.code, RefusalCode::NameMismatch);
    assert!(evil.message.contains("evil.com") && evil.message.contains("example.com"), "{evil}");
    assert_eq!(refusal(claimed(&Claim::Host("9.9.9.9".to_owned()))).code, RefusalCode::NameMismatch);
    assert_eq!(refusal(claimed(&Claim::NoSni)).code, RefusalCode::NameHidden);
    assert_eq!(refusal(claimed(&Claim::NoHost)).code, RefusalCode::NameHidden);
}

#[test]
fn internet_policy_refuses_only_denied_names() {
    let guard = guard(json!({"allow_internet": true, "deny_domains": ["bad.com"]}));
    let there = to("9.9.9.9:443");
    assert!(guard.needs_claim(there, None));
    for claim in [Claim::Sni("good.com".to_owned()), Claim::Host("good.com".to_owned())] {
        assert!(guard.rejudge_claim(there, None, &claim).is_allowed(), "{claim:?}");
    }
    for claim in [Claim::Sni("Bad.com".to_owned()), Claim::Host("bad.com.".to_owned())] {
        assert_eq!(
            refusal(guard.rejudge_claim(there, None, &claim)).code,
            RefusalCode::DeniedName,
            "{claim:?}"
        );
    }
}

/// All claims that show no name that can be judged.
fn nameless() -> [Claim; 8] {
    [
        Claim::NoSni,
        Claim::Encrypted(None),
        Claim::Encrypted(Some("good.com".to_owned())),
        Claim::NoHost,
        Claim::NoGitHost,
        Claim::Opaque,
        Claim::Host("9.9.9.9".to_owned()),
        Claim::Sni("good..com".to_owned()),
    ]
}

#[test]
fn nameless_connections_are_refused_under_deny_list() {
    let there = to("9.9.9.9:443");
    for (policy, resolved) in [
        (json!({"allow_internet": true, "deny_domains": ["bad.com"]}), false),
        (json!({"allow_internet": true, "deny_domains": ["bad.com"]}), true),
        (json!({"allow_domains": ["*.com"], "deny_domains": ["bad.com:443"]}), true),
        (json!({"allow_cidrs": ["0.0.0.0/0"], "deny_domains": ["bad.com"]}), false),
    ] {
        let guard = guard(policy.clone());
        if resolved {
            guard.bind(&name("good.com"), *there.ip(), TTL);
        }
        assert!(guard.judge(Transport::Tcp, there).is_allowed() && guard.needs_name(there, None), "{policy}");
        for claim in nameless() {
            let refused = refusal(guard.rejudge_claim(there, None, &claim));
            assert_eq!(refused.code, RefusalCode::NameHidden, "{policy} {claim:?}");
            for word in ["deny_domains", "allow_cidrs", "9.9.9.9:443"] {
                assert!(refused.message.contains(word), "{refused}");
            }
        }
        let datagram = refusal(guard.judge(Transport::Udp, there));
        assert_eq!(datagram.code, RefusalCode::NameHidden, "{policy}");
        assert!(
            guard.rejudge_claim(there, None, &Claim::Sni("good.com".to_owned())).is_allowed(),
            "{policy}"
        );
    }
}

#[test]
fn allowed_addresses_and_other_ports_need_no_name() {
    let there = to("9.9.9.9:443");
    for policy in [
        json!({"allow_cidrs": ["9.9.9.0/24"], "deny_domains": ["bad.com"]}),
        json!({"allow_internet": true, "deny_domains": ["bad.com:80"]}),
        json!({"allow_internet": true}),
    ] {
        let guard = guard(policy.clone());
        assert!(!guard.needs_name(there, None), "{policy}");
        for claim in nameless() {
            assert!(guard.rejudge_claim(there, None, &claim).is_allowed(), "{policy} {claim:?}");
        }
        assert!(guard.judge(Transport::Udp, there).is_allowed(), "{policy}");
    }
}

#[test]
fn quic_is_refused_where_names_decide() {
    let open = guard(json!({"allow_internet": true}));
    assert!(open.judge(Transport::Udp, to("9.9.9.9:443")).is_allowed());
    let named = guard(json!({"allow_domains": ["example.com"]}));
    named.bind(&name("example.com"), Ipv4Addr::new(9, 9, 9, 9), TTL);
    assert_eq!(refusal(named.judge(Transport::Udp, to("9.9.9.9:443"))).code, RefusalCode::NameHidden);
    assert!(named.judge(Transport::Udp, to("9.9.9.9:123")).is_allowed());
    let denying =
        guard(json!({"allow_internet": true, "deny_domains": ["bad.com"], "allow_cidrs": ["9.9.9.0/24"]}));
    assert_eq!(refusal(denying.judge(Transport::Udp, to("1.2.3.4:443"))).code, RefusalCode::NameHidden);
    assert!(
        denying.judge(Transport::Udp, to("9.9.9.9:443")).is_allowed(),
        "an address that is allowed as such"
    );
}

#[tokio::test(start_paused = true)]
async fn flow_outlives_its_binding_but_not_its_rule() {
    let guard = guard(json!({"allow_domains": ["example.com"]}));
    let there = to("9.9.9.9:443");
    guard.bind(&name("example.com"), *there.ip(), TTL);
    tokio::time::advance(TTL + GRACE + Duration::from_secs(1)).await;
    assert!(!guard.judge(Transport::Tcp, there).is_allowed());
    assert!(guard.rejudge(Transport::Tcp, there, Some("example.com")).is_allowed());
    assert!(!guard.rejudge(Transport::Tcp, there, None).is_allowed());
    assert!(guard.needs_claim(there, None));
    let claimed = |resolved, name: &str| guard.rejudge_claim(there, resolved, &Claim::Sni(name.to_owned()));
    assert!(claimed(Some("example.com"), "example.com").is_allowed());
    assert!(!claimed(Some("example.com"), "evil.com").is_allowed());
    assert!(!claimed(None, "example.com").is_allowed(), "a name that the guest says opens nothing by itself");
    let mut generation = guard.watch();
    generation.mark_unchanged();
    guard.set_policy(policy(json!({"allow_domains": ["example.org"]})));
    assert!(generation.has_changed().unwrap());
    assert!(!guard.rejudge(Transport::Tcp, there, Some("example.com")).is_allowed());
}

#[test]
fn shared_address_needs_all_names_denied() {
    let guard = guard(json!({"allow_internet": true, "deny_domains": ["bad.com"]}));
    let there = to("9.9.9.9:443");
    guard.bind(&name("bad.com"), *there.ip(), TTL);
    assert_eq!(refusal(guard.judge(Transport::Tcp, there)).code, RefusalCode::DeniedName);
    guard.bind(&name("good.com"), *there.ip(), TTL);
    assert!(guard.judge(Transport::Tcp, there).is_allowed());
}

proptest! {
    #[test]
    fn private_addresses_need_their_own_rule(
        bits: u32, port: u16, allow_internet: bool, claim in "[a-z.]{0,12}",
    ) {
        let there = SocketAddrV4::new(Ipv4Addr::from_bits(bits), port);
        let guard = guard(json!({"allow_internet": allow_internet, "allow_domains": ["*.example.com"]}));
        guard.bind(&name("a.example.com"), *there.ip(), TTL);
        let special = never_public(*there.ip()).is_some() || *there.ip() == HOST;
        for transport in [Transport::Tcp, Transport::Udp] {
            prop_assert!(!special || !guard.judge(transport, there).is_allowed());
        }
        prop_assert!(!special || !guard.rejudge_claim(there, None, &Claim::Sni(claim)).is_allowed());
    }

    #[test]
    fn claim_allows_no_more_than_opening(bits: u32, host in "[a-z]{1,3}\\.(com|org)") {
        let there = SocketAddrV4::new(Ipv4Addr::from_bits(bits), 443);
        let guard = guard(json!({"allow_domains": ["*.com"], "deny_domains": ["a.com"]}));
        if bits % 2 == 0 {
            guard.bind(&name("b.com"), *there.ip(), TTL);
        }
        let claimed = guard.rejudge_claim(there, None, &Claim::Sni(host.clone())).is_allowed();
        prop_assert!(!claimed || guard.judge(Transport::Tcp, there).is_allowed());
        prop_assert!(!claimed || (host.ends_with(".com") && host != "a.com"));
    }
}
