//! Flows that the policy forbids fail at once and are logged.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use agentiso_core::network::{DomainName, DomainRule, NetworkPolicy};
use agentiso_net::flow::log::FlowEvent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::frames::{ipv4_frame, udp};
use crate::world::{GATEWAY, World, echo_server, eventually, internet, public, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connections_are_reset_and_datagrams_answered() {
    let world = World::new();
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, NetworkPolicy::default());
    let guest = vm.guest().await;
    assert_eq!(guest.open(public(7)).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    let refused = vm.recorded(FlowEvent::Refused).await;
    assert_eq!((refused.address, refused.port), (*public(7).ip(), Some(7)));
    assert!(refused.message.is_some_and(|message| message.contains("allow_")));

    let body = udp(5000, 7, b"hello");
    guest.send_frame(&ipv4_frame(vm.identity.mac, vm.identity.address, *public(7).ip(), 17, &body, 0));
    let message = eventually(|| guest.others().into_iter().next()).await;
    assert_eq!((message[9], message[20], message[21]), (1, 3, 13), "administratively prohibited");
    assert_eq!(message[28..48][12..20], [vm.identity.address.octets(), public(7).ip().octets()].concat());
    assert_eq!(vm.attachment.open_flows(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn internet_policy_does_not_open_the_host() {
    let world = World::new();
    let address = echo_server().await;
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    for ip in [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(169, 254, 169, 254), GATEWAY] {
        let to = std::net::SocketAddrV4::new(ip, address.port());
        world.route(to, address);
        assert!(guest.open(to).await.is_err(), "{ip}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_change_ends_a_running_download() {
    let world = World::new();
    let endless =
        server(async |mut stream: TcpStream| while stream.write_all(&[7; 10_000]).await.is_ok() {}).await;
    world.route(public(80), endless);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let stream = guest.open(public(80)).await.unwrap();
    stream.read_exact(1_000_000).await.unwrap();
    vm.guard.set_policy(NetworkPolicy::default());
    let mut space = vec![0; 1 << 20];
    let reset = loop {
        match stream.read(&mut space).await {
            Ok(0) => panic!("the connection ended as if it were complete"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert!(closed.bytes_down >= 1_000_000 && closed.message.is_some());
    assert_eq!(vm.find(FlowEvent::Refused).len(), 1);
    assert_eq!(guest.open(public(80)).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    vm.guard.set_policy(internet());
    assert!(guest.open(public(80)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_leaves_before_its_host_is_known() {
    let world = World::new();
    world.route(public(80), echo_server().await);
    let rule = DomainRule::parse("good.example").unwrap();
    let policy = NetworkPolicy { allow_domains: vec![rule], ..NetworkPolicy::default() };
    let vm = world.vm(2, policy);
    let name = DomainName::parse("good.example").unwrap();
    vm.guard.bind(&name, *public(80).ip(), Duration::from_secs(60));
    let guest = vm.guest().await;

    let good = guest.open(public(80)).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
    good.write_all(&request[..20]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    good.write_all(&request[20..]).await.unwrap();
    assert_eq!(good.read_exact(request.len()).await.unwrap(), request);

    let bad = guest.open(public(80)).await.unwrap();
    bad.write_all(b"GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n").await.unwrap();
    assert_eq!(bad.read(&mut [0; 100]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = vm.recorded(FlowEvent::Refused).await;
    assert!(refused.message.is_some_and(|message| message.contains("bad.example")));
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert_eq!((closed.bytes_up, closed.name.as_deref()), (0, Some("bad.example")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nameless_connections_carry_nothing_under_deny_list() {
    let world = World::new();
    // A server that sends first, and then echoes.
    let talkative = server(async |mut stream: TcpStream| {
        let _ = stream.write_all(b"welcome").await;
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    world.route(public(443), talkative);
    let deny = DomainRule::parse("bad.example").unwrap();
    let vm = world.vm(2, NetworkPolicy { deny_domains: vec![deny], ..internet() });
    let guest = vm.guest().await;
    for (count, first) in [
        &b"SSH-2.0-x\r\n"[..],
        b"\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10",
        b"\x16\x03\x01\0\0",
        b"GET / HTTP/1.0\r\n\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let stream = guest.open(public(443)).await.unwrap();
        stream.write_all(first).await.unwrap();
        let reset = stream.read(&mut [0; 100]).await.expect_err("not even the greeting arrives");
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        let refused = eventually(|| vm.find(FlowEvent::Refused).into_iter().nth(count)).await;
        let message = refused.message.unwrap();
        assert!(message.contains("deny_domains") && message.contains("allow_cidrs"), "{message}");
        let closed = eventually(|| vm.find(FlowEvent::Closed).into_iter().nth(count)).await;
        assert_eq!((closed.bytes_up, closed.bytes_down), (0, 0));
    }
    let named = guest.open(public(443)).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
    named.write_all(request).await.unwrap();
    assert_eq!(named.read_exact(7).await.unwrap(), b"welcome");
    assert_eq!(named.read_exact(request.len()).await.unwrap(), request);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bandwidth_limit_applies_and_can_be_lifted() {
    let world = World::new();
    let slow = server(async |mut stream: TcpStream| {
        while let Ok(count) = stream.read_u32().await {
            stream.write_all(&vec![1; count as usize]).await.unwrap();
        }
    })
    .await;
    world.route(public(80), slow);
    let limited = NetworkPolicy { bandwidth_mbps: Some(8), ..internet() };
    let vm = world.vm(2, limited);
    let guest = vm.guest().await;
    let stream = guest.open(public(80)).await.unwrap();
    let begun = std::time::Instant::now();
    stream.write_all(&800_000_u32.to_be_bytes()).await.unwrap();
    stream.read_exact(800_000).await.unwrap();
    // A megabyte per second, of which the first 128 KiB pass at once.
    assert!(begun.elapsed() > Duration::from_millis(550), "{:?}", begun.elapsed());
    vm.guard.set_policy(internet());
    stream.write_all(&20_000_000_u32.to_be_bytes()).await.unwrap();
    stream.read_exact(20_000_000).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
