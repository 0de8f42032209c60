//! Names that the policy allows, and their answers.

use std::net::Ipv4Addr;

use agentiso_net::policy::{RefusalCode, Transport};
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use serde_json::json;

use crate::guest::Guest;
use crate::server::{Script, Server, a, cname, found, kinds, name, txt};

#[tokio::test]
async fn answering_an_allowed_name_opens_its_address() {
    let server = Server::start().await;
    server.on("api.example.com.", found(vec![a("api.example.com.", 60, [1, 2, 3, 4])]));
    let guest = Guest::new(json!({"allow_domains": ["*.example.com:443"]}), vec![server.address]);
    assert!(!guest.may_open([1, 2, 3, 4], 443));
    let heard = guest.ask("API.example.COM.", RecordType::A).await;
    assert_eq!(heard.message.metadata.response_code, ResponseCode::NoError);
    assert_eq!(heard.addresses(), [[1, 2, 3, 4]]);
    assert_eq!(heard.refused, None);
    assert!(guest.may_open([1, 2, 3, 4], 443));
    assert!(!guest.may_open([1, 2, 3, 4], 80) && !guest.may_open([1, 2, 3, 5], 443));
}

#[tokio::test]
async fn disallowed_name_is_refused_without_asking_upstream() {
    let server = Server::start().await;
    let cases = [
        (json!({}), "no internet"),
        (json!({"allow_domains": ["example.com"]}), "not listed"),
        (json!({"allow_internet": true, "deny_domains": ["*.evil.com"]}), "deny_domains *.evil.com"),
        (json!({"allow_cidrs": ["0.0.0.0/0"]}), "no internet"),
    ];
    for (policy, why) in cases {
        let guest = Guest::new(policy, vec![server.address]);
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::ANY, RecordType::HTTPS] {
            let heard = guest.ask("secret.evil.com.", kind).await;
            assert_eq!(heard.message.metadata.response_code, ResponseCode::Refused);
            let (code, text) = heard.explanation().unwrap();
            assert!(code == 15 && text.contains(why), "{code} {text}");
            let refused = heard.refused.unwrap();
            assert_eq!((refused.name.as_str(), refused.refusal.message), ("secret.evil.com", text));
        }
    }
    assert_eq!(server.asked(), 0);
}

#[tokio::test]
async fn resolver_answers_text_but_no_ipv6() {
    let server = Server::start().await;
    let stray = a("example.com.", 60, [1, 2, 3, 4]);
    server.on("example.com.", found(vec![txt("example.com.", 60, "hello"), stray]));
    let guest = Guest::new(json!({"allow_domains": ["example.com"]}), vec![server.address]);
    let heard = guest.ask("example.com.", RecordType::TXT).await;
    assert_eq!(kinds(&heard.message), [RecordType::TXT]);
    assert_eq!(server.asked(), 1);
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
        let heard = guest.ask("example.com.", kind).await;
        assert_eq!(heard.message.metadata.response_code, ResponseCode::NoError);
        assert!(heard.message.answers.is_empty());
    }
    for kind in [RecordType::ANY, RecordType::AXFR, RecordType::IXFR, RecordType::Unknown(249)] {
        let heard = guest.ask("example.com.", kind).await;
        assert_eq!(heard.message.metadata.response_code, ResponseCode::NotImp, "{kind}");
    }
    assert_eq!(server.asked(), 1);
    assert!(!guest.may_open([1, 2, 3, 4], 443), "an address nobody asked for opens nothing");
}

#[tokio::test]
async fn cname_chain_binds_to_the_asked_name() {
    let server = Server::start().await;
    let answers = vec![
        a("edge.cdn.net.", 600, [1, 2, 3, 4]),
        cname("www.example.com.", 30, "example.cdn.net."),
        cname("example.cdn.net.", 900, "edge.cdn.net."),
        a("unrelated.net.", 600, [6, 6, 6, 6]),
    ];
    server.on("www.example.com.", found(answers));
    let guest = Guest::new(json!({"allow_domains": ["www.example.com"]}), vec![server.address]);
    let heard = guest.ask("www.example.com.", RecordType::A).await;
    assert_eq!(kinds(&heard.message), [RecordType::CNAME, RecordType::CNAME, RecordType::A]);
    assert!(heard.message.answers.iter().all(|record| record.ttl <= 30), "{heard:?}");
    assert!(guest.may_open([1, 2, 3, 4], 443) && !guest.may_open([6, 6, 6, 6], 443));
    let heard = guest.ask("edge.cdn.net.", RecordType::A).await;
    assert_eq!(heard.message.metadata.response_code, ResponseCode::Refused);
}

#[tokio::test]
async fn circular_cname_chain_has_no_answer() {
    let server = Server::start().await;
    let circle = vec![cname("a.example.", 30, "b.example."), cname("b.example.", 30, "a.example.")];
    server.on("a.example.", found(circle));
    let guest = Guest::new(json!({"allow_internet": true}), vec![server.address]);
    let heard = guest.ask("a.example.", RecordType::A).await;
    assert!(heard.message.answers.is_empty());
}

#[tokio::test]
async fn private_addresses_are_left_out_of_answers() {
    let server = Server::start().await;
    let private = [
        [10, 0, 0, 5],
        [127, 0, 0, 1],
        [169, 254, 169, 254],
        [0, 0, 0, 0],
        [10, 42, 0, 1],
        [198, 51, 100, 1],
    ];
    let guest =
        Guest::new(json!({"allow_internet": true, "allow_cidrs": ["10.1.0.0/16:80"]}), vec![server.address]);
    for (index, address) in private.into_iter().enumerate() {
        let rebound = format!("rebind{index}.example.");
        server.on(&rebound, found(vec![a(&rebound, 60, address)]));
        let heard = guest.ask(&rebound, RecordType::A).await;
        assert_eq!(heard.addresses(), [[0_u8; 4]; 0], "{address:?}");
        assert_eq!(heard.explanation().unwrap().0, 17);
        let refusal = heard.refused.unwrap().refusal;
        assert!(matches!(refusal.code, RefusalCode::PrivateAddress | RefusalCode::Unreachable), "{refusal}");
        assert!(!guest.may_open(address, 80));
    }
    server.on(
        "mixed.example.",
        found(vec![
            a("mixed.example.", 60, [192, 168, 0, 1]),
            a("mixed.example.", 60, [1, 1, 1, 1]),
            a("mixed.example.", 60, [10, 1, 2, 3]),
        ]),
    );
    let heard = guest.ask("mixed.example.", RecordType::A).await;
    assert_eq!(heard.addresses(), [[1, 1, 1, 1], [10, 1, 2, 3]]);
    assert_eq!(heard.refused, None);
    let heard = guest.ask("1.0.168.192.in-addr.arpa.", RecordType::PTR).await;
    assert_eq!(heard.message.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(server.asked(), private.len() + 1);
}

#[tokio::test]
async fn neighbours_resolve_without_internet() {
    let mut guest = Guest::new(json!({}), Vec::new());
    guest.others.0.insert("worker-1".to_owned(), Ipv4Addr::new(10, 42, 0, 7));
    for asked in ["worker-1.", "WORKER-1.agentiso."] {
        let heard = guest.ask(asked, RecordType::A).await;
        assert_eq!(heard.addresses(), [[10, 42, 0, 7]], "{asked}");
        let heard = guest.ask(asked, RecordType::AAAA).await;
        assert_eq!(heard.message.metadata.response_code, ResponseCode::NoError);
    }
    for asked in ["worker-2.", "worker-1.example.com.", "x.worker-1.agentiso."] {
        let heard = guest.ask(asked, RecordType::A).await;
        assert_eq!(heard.message.metadata.response_code, ResponseCode::Refused, "{asked}");
    }
}

#[tokio::test]
async fn policy_change_applies_to_cached_answers() {
    let server = Server::start().await;
    server.on("example.com.", found(vec![a("example.com.", 60, [1, 2, 3, 4])]));
    let guest = Guest::new(json!({"allow_internet": true}), vec![server.address]);
    assert_eq!(guest.ask("example.com.", RecordType::A).await.addresses(), [[1, 2, 3, 4]]);
    guest.guard.set_policy(serde_json::from_value(json!({})).unwrap());
    let heard = guest.ask("example.com.", RecordType::A).await;
    assert_eq!(heard.message.metadata.response_code, ResponseCode::Refused);
    guest.guard.set_policy(serde_json::from_value(json!({"allow_domains": ["example.com"]})).unwrap());
    assert_eq!(guest.ask("example.com.", RecordType::A).await.addresses(), [[1, 2, 3, 4]]);
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn malformed_query_gets_an_error_or_nothing() {
    let guest = Guest::new(json!({"allow_internet": true}), Vec::new());
    let code = async |bytes: &[u8]| {
        guest.send(bytes, Transport::Udp).await.map(|heard| heard.message.metadata.response_code)
    };
    assert_eq!(code(&[]).await, None);
    assert_eq!(code(&[0; 11]).await, None);
    let mut query = Message::query();
    query.add_query(Query::query(name("example.com."), RecordType::A));
    let good = query.to_vec().unwrap();
    let mut answer = good.clone();
    answer[2] |= 0x80;
    assert_eq!(code(&answer).await, None, "answers are not answered");
    assert_eq!(code(&good[..good.len() - 1]).await, Some(ResponseCode::FormErr));
    assert_eq!(code(&good[..12]).await, Some(ResponseCode::FormErr));
    assert_eq!(code(&[good.clone(), vec![0; 5000]].concat()).await, Some(ResponseCode::FormErr));
    let mut two = query.clone();
    two.add_query(Query::query(name("example.org."), RecordType::A));
    assert_eq!(code(&two.to_vec().unwrap()).await, Some(ResponseCode::FormErr));
    let mut chaos = query.clone();
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(code(&chaos.to_vec().unwrap()).await, Some(ResponseCode::NotImp));
    let mut update = query.clone();
    update.metadata.op_code = OpCode::Notify;
    assert_eq!(code(&update.to_vec().unwrap()).await, Some(ResponseCode::NotImp));
    let odd = Message::from_vec(&{
        let mut odd = Message::query();
        let labels: [&[u8]; 2] = [b"a.b\0", b"com"];
        odd.add_query(Query::query(hickory_proto::rr::Name::from_labels(labels).unwrap(), RecordType::A));
        odd.to_vec().unwrap()
    });
    assert_eq!(code(&odd.unwrap().to_vec().unwrap()).await, Some(ResponseCode::Refused));
    assert_eq!(code(&good).await, Some(ResponseCode::ServFail), "nobody to ask");
}

#[tokio::test]
async fn long_answer_is_truncated_over_udp_only() {
    let server = Server::start().await;
    let many: Vec<_> = (0..100).map(|n| a("example.com.", 60, [1, 2, 3, n])).collect();
    server.on("example.com.", Script { truncated: true, ..found(many) });
    let guest = Guest::new(json!({"allow_internet": true}), vec![server.address]);
    let mut plain = Message::query();
    plain.add_query(Query::query(name("example.com."), RecordType::A));
    let heard = guest.send(&plain.to_vec().unwrap(), Transport::Udp).await.unwrap();
    assert!(heard.message.metadata.truncation && heard.message.answers.is_empty());
    let heard = guest.ask_over("example.com.", RecordType::A, Transport::Tcp).await;
    assert_eq!(heard.addresses().len(), 100);
    assert!(!heard.message.metadata.truncation);
}
