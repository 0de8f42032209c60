//! Golden tables, and properties of all tables.

use super::*;
use serde_json::json;

fn layout() -> BridgeLayout {
    BridgeLayout {
        bridge: "br-agentiso".to_owned(),
        gateway: Ipv4Addr::new(10, 42, 0, 1),
        subnet: Network::around(Ipv4Addr::new(10, 42, 0, 0), 16),
        tap_prefix: "aiso",
        relay_port: 40_001,
        names_port: 40_002,
        names_tcp_port: 40_003,
        services: Vec::new(),
        log_group: 41_296,
        flows_group: 41_297,
    }
}

fn guest(number: u8, policy: serde_json::Value) -> Guest {
    let short = format!("0000000{number}");
    Guest {
        tap: format!("aiso{short}"),
        short,
        mac: [2, 0, 0, 0, 0, number],
        address: Ipv4Addr::new(10, 42, 0, number),
        policy: serde_json::from_value(policy).unwrap(),
        groups: BTreeSet::new(),
        named: Vec::new(),
    }
}

fn text(guests: &[Guest]) -> String {
    tables(&layout(), guests).iter().map(ToString::to_string).collect()
}

/// The lines of one chain.
fn chain(text: &str, name: &str) -> Vec<String> {
    let begin = format!("\tchain {name} {{");
    let lines = text.lines().skip_while(|line| *line != begin).skip(1);
    lines.take_while(|line| *line != "\t}").map(|line| line.trim().to_owned()).collect()
}

#[test]
fn tables_of_isolated_guest_match_golden() {
    assert_eq!(text(&[guest(2, json!({}))]), include_str!("golden/nothing.nft"));
}

#[test]
fn tables_with_all_rule_kinds_match_golden() {
    let mut named = guest(
        2,
        json!({
            "allow_domains": ["example.com", "*.example.org:443"], "deny_domains": ["bad.example.org"],
            "allow_cidrs": ["192.168.1.5:5432", "0.0.0.0/0:22,2222"], "deny_cidrs": ["203.0.113.0/24"],
            "bandwidth_mbps": 10,
        }),
    );
    let at = |address: [u8; 4], port, open| NamedAddress {
        address: address.into(),
        port,
        open,
        left: Duration::from_secs(660),
    };
    named.named = vec![
        at([198, 51, 100, 2], None, true),
        at([198, 51, 100, 3], Some(443), true),
        at([198, 51, 100, 4], None, false),
    ];
    let open = guest(3, json!({"allow_internet": true, "allow_inter_vm": true}));
    let mut door = guest(4, json!({"allow_inter_vm": true, "allowed_ports": [80, 443]}));
    door.groups.insert("team".to_owned());
    let mut member = guest(5, json!({}));
    member.groups.insert("team".to_owned());
    assert_eq!(text(&[named, open, door, member]), include_str!("golden/everything.nft"));
}

#[test]
fn flow_count_table_matches_golden() {
    let share = flows::share(&layout(), "00000002", Ipv4Addr::new(10, 42, 0, 2));
    let maps: String = share.maps.iter().map(ToString::to_string).collect();
    let text = format!("{}{}{maps}", flows::table(&layout()), share.table);
    assert_eq!(text, include_str!("golden/flows.nft"));
}

#[test]
fn service_adds_only_its_own_port() {
    let services = vec![ServicePorts { theirs: 3100, ours: 40_004 }];
    let with = BridgeLayout { services, ..layout() };
    let with: String = tables(&with, &[guest(2, json!({}))]).iter().map(ToString::to_string).collect();
    let without = text(&[guest(2, json!({}))]);
    let added: Vec<&str> = with.lines().filter(|line| line.contains("3100")).collect();
    assert_eq!(
        added,
        [
            "\t\tip daddr 10.42.0.1 meta l4proto tcp th dport 3100 redirect to :40004",
            "\t\tmeta l4proto tcp th dport 3100 accept"
        ]
    );
    let rest: Vec<&str> = with.lines().filter(|line| !line.contains("3100")).collect();
    assert_eq!(rest, without.lines().collect::<Vec<_>>());
}

#[test]
fn return_rules_mirror_outbound_rules() {
    let policy = json!({"allow_domains": ["a.example:53"], "allow_cidrs": ["9.0.0.0/8:1,2"], "deny_cidrs": ["9.9.9.9"]});
    let text = text(&[guest(2, policy)]);
    let out = chain(&text, "out-00000002").split_off(3);
    let back = chain(&text, "back-00000002");
    let mirrored: Vec<String> = out
        .iter()
        .map(|rule| {
            rule.replace("daddr", "saddr")
                .replace("dport", "sport")
                .replace("jump special", "jump special-back")
                .replace("goto refuse-00000002", "drop")
        })
        .collect();
    assert_eq!(back, mirrored);
}

#[test]
fn quic_passes_only_where_names_do_not_decide() {
    let shut =
        |policy| chain(&text(&[guest(2, policy)]), "out-00000002").iter().any(|rule| rule.contains("443"));
    assert!(shut(json!({"allow_domains": ["a.example"]})));
    assert!(!shut(json!({"allow_internet": true})));
    assert!(!shut(json!({"allow_internet": true, "allow_domains": ["a.example"]})));
}

#[test]
fn datagrams_are_refused_where_names_are_denied() {
    let rules = |policy| chain(&text(&[guest(2, policy)]), "out-00000002");
    let denying = |names: &[&str]| json!({"allow_internet": true, "deny_domains": names, "allow_cidrs": ["1.2.3.4", "0.0.0.0/0"]});
    let all = rules(denying(&["a.example", "b.example:25"]));
    let at =
        |rule: &str| all.iter().position(|line| line == rule).unwrap_or_else(|| panic!("{rule}: {all:#?}"));
    let refused = at("meta l4proto udp goto refuse-00000002");
    assert!(at("ip daddr 1.2.3.4 accept") < refused, "that address was meant");
    assert!(refused < at("ip daddr 0.0.0.0/0 accept"), "that one is the internet by another name");
    let one = rules(denying(&["b.example:25"]));
    assert!(one.contains(&"meta l4proto udp th dport 25 goto refuse-00000002".to_owned()), "{one:#?}");
    let some = rules(denying(&["b.example:25,26"]));
    assert!(
        some.contains(&"meta l4proto udp th dport @nameless-00000002 goto refuse-00000002".to_owned()),
        "{some:#?}"
    );
}

#[test]
fn rules_reference_only_existing_chains_and_sets() {
    let guests: Vec<Guest> =
        (2..6).map(|n| guest(n, json!({"allow_inter_vm": true, "allow_domains": ["a.example"], "deny_domains": ["b.example:1,2"], "allow_cidrs": ["1.2.3.4:1,2"]}))).collect();
    for table in tables(&layout(), &guests) {
        let chains: Vec<&str> = table.chains.iter().map(|chain| chain.name.as_str()).collect();
        let sets: Vec<&str> = table.sets.iter().map(|set| set.name.as_str()).collect();
        for name in table.to_string().split_whitespace().collect::<Vec<_>>().windows(2) {
            let [word, name] = name else { unreachable!() };
            let name = name.trim_end_matches([',', '}']);
            if matches!(*word, "goto" | "jump") {
                assert!(chains.contains(&name), "{name}");
            }
            if let Some(set) = name.strip_prefix('@').filter(|set| !set.contains(',')) {
                assert!(sets.contains(&set), "{set}");
            }
        }
        let mut unique = chains.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), chains.len(), "names of chains are unique");
    }
}
