//! Questions to the host's resolvers: asked once, safely, and past resolvers that fail.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use agentiso_net::policy::Transport;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use serde_json::json;
use tokio::net::UdpSocket;

use crate::guest::Guest;
use crate::server::{Script, Server, a, found, soa};

fn online(upstreams: Vec<SocketAddr>) -> Guest {
    Guest::new(json!({"allow_internet": true}), upstreams)
}

#[tokio::test]
async fn answers_are_cached_with_a_capped_ttl() {
    let server = Server::start().await;
    server.on("example.com.", found(vec![a("example.com.", 86400, [1, 2, 3, 4])]));
    let guest = online(vec![server.address]);
    for _ in 0..3 {
        let heard = guest.ask("example.com.", RecordType::A).await;
        assert!((290..=300).contains(&heard.message.answers[0].ttl), "{heard:?}");
    }
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn zero_ttl_answer_is_asked_again() {
    let server = Server::start().await;
    server.on("example.com.", found(vec![a("example.com.", 0, [1, 2, 3, 4])]));
    let guest = online(vec![server.address]);
    for _ in 0..2 {
        assert_eq!(guest.ask("example.com.", RecordType::A).await.addresses(), [[1, 2, 3, 4]]);
    }
    assert_eq!(server.asked(), 2);
    assert!(guest.may_open([1, 2, 3, 4], 443));
}

#[tokio::test]
async fn negative_answers_are_cached_with_their_zone() {
    let server = Server::start().await;
    let zone = vec![soa("example.com.", 3600, 1800)];
    let none = Script { code: ResponseCode::NXDomain, authorities: zone.clone(), ..Script::default() };
    server.on("none.example.com.", none);
    server.on("empty.example.com.", Script { authorities: zone, ..Script::default() });
    let guest = online(vec![server.address]);
    for _ in 0..2 {
        for (name, code) in [("none", ResponseCode::NXDomain), ("empty", ResponseCode::NoError)] {
            let heard = guest.ask(&format!("{name}.example.com."), RecordType::A).await;
            assert_eq!(heard.message.metadata.response_code, code);
            assert_eq!(heard.message.authorities.len(), 1);
            assert!(heard.message.authorities[0].ttl <= 60);
        }
    }
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn concurrent_lookups_share_one_question() {
    let server = Server::start().await;
    let delay = Duration::from_millis(100);
    server.on("example.com.", Script { delay, ..found(vec![a("example.com.", 60, [1, 2, 3, 4])]) });
    let guest = online(vec![server.address]);
    let asked = (0..20).map(|_| guest.ask("example.com.", RecordType::A));
    for heard in futures::future::join_all(asked).await {
        assert_eq!(heard.addresses(), [[1, 2, 3, 4]]);
    }
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn shared_lookup_survives_its_first_asker() {
    let server = Server::start().await;
    let delay = Duration::from_millis(200);
    server.on("example.com.", Script { delay, ..found(vec![a("example.com.", 60, [1, 2, 3, 4])]) });
    let guest = online(vec![server.address]);
    let impatient = tokio::time::timeout(Duration::from_millis(50), guest.ask("example.com.", RecordType::A));
    let (gave_up, heard) = tokio::join!(impatient, guest.ask("example.com.", RecordType::A));
    assert!(gave_up.is_err());
    assert_eq!(heard.addresses(), [[1, 2, 3, 4]]);
}

#[tokio::test]
async fn question_ports_and_ids_are_random() {
    let server = Server::start().await;
    let guest = online(vec![server.address]);
    for n in 0..32 {
        guest.ask(&format!("n{n}.example.com."), RecordType::A).await;
    }
    let ports: HashSet<u16> = server.ports().into_iter().collect();
    let ids: HashSet<u16> = server.ids().into_iter().collect();
    assert!(ports.len() > 24 && ids.len() > 24, "{} ports, {} ids", ports.len(), ids.len());
}

#[tokio::test]
async fn forged_dns_answers_are_ignored() {
    let server = Server::start().await;
    server.on("example.com.", Script { forged: true, ..found(vec![a("example.com.", 60, [1, 2, 3, 4])]) });
    let heard = online(vec![server.address]).ask("example.com.", RecordType::A).await;
    assert_eq!(heard.addresses(), [[1, 2, 3, 4]]);
}

#[tokio::test]
async fn truncated_answer_is_fetched_over_tcp() {
    let server = Server::start().await;
    server.on("example.com.", Script { truncated: true, ..found(vec![a("example.com.", 60, [1, 2, 3, 4])]) });
    let heard = online(vec![server.address]).ask_over("example.com.", RecordType::A, Transport::Tcp).await;
    assert_eq!(heard.addresses(), [[1, 2, 3, 4]]);
    assert_eq!((server.asked(), server.asked_over_tcp()), (1, 1));
}

#[tokio::test]
async fn server_rejecting_edns_is_asked_without_it() {
    let server = Server::start().await;
    server.on("example.com.", Script { no_edns: true, ..found(vec![a("example.com.", 60, [1, 2, 3, 4])]) });
    let heard = online(vec![server.address]).ask("example.com.", RecordType::A).await;
    assert_eq!(heard.addresses(), [[1, 2, 3, 4]]);
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn failing_dns_servers_are_skipped_and_remembered() {
    let (silent, failing, good) = (Server::start().await, Server::start().await, Server::start().await);
    let closed = {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.local_addr().unwrap()
    };
    for n in 0..2 {
        let name = format!("n{n}.example.com.");
        silent.on(&name, Script { silent: true, ..Script::default() });
        failing.on(&name, Script { code: ResponseCode::ServFail, ..Script::default() });
        good.on(&name, found(vec![a(&name, 60, [1, 2, 3, 4])]));
    }
    let guest = online(vec![closed, failing.address, silent.address, good.address]);
    assert_eq!(guest.ask("n0.example.com.", RecordType::A).await.addresses(), [[1, 2, 3, 4]]);
    let started = Instant::now();
    assert_eq!(guest.ask("n1.example.com.", RecordType::A).await.addresses(), [[1, 2, 3, 4]]);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!((silent.asked(), failing.asked(), good.asked()), (1, 1, 2));
}

#[tokio::test]
async fn failing_dns_server_is_asked_twice() {
    let failing = Server::start().await;
    failing.on("example.com.", Script { code: ResponseCode::ServFail, ..Script::default() });
    let guest = online(vec![failing.address]);
    let started = Instant::now();
    let heard = guest.ask("example.com.", RecordType::A).await;
    assert_eq!(heard.message.metadata.response_code, ResponseCode::ServFail);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(failing.asked(), 2);
}

#[tokio::test]
async fn silent_dns_server_fails_in_time() {
    let silent = Server::start().await;
    silent.on("example.com.", Script { silent: true, ..Script::default() });
    let guest = online(vec![silent.address]);
    let started = Instant::now();
    let heard = guest.ask("example.com.", RecordType::A).await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(heard.message.metadata.response_code, ResponseCode::ServFail);
    let (_, text) = heard.explanation().unwrap();
    assert!(
        text.contains("example.com") && text.contains(&format!("{} does not answer", silent.address)),
        "{text}"
    );
    // The failure is cached for a moment, so that a guest that asks in a loop does not make the host ask in a loop.
    let asked = silent.asked();
    guest.ask("example.com.", RecordType::A).await;
    assert_eq!(silent.asked(), asked);
}
