//! Datagrams, names and pings.

use std::net::{Ipv4Addr, SocketAddrV4};

use agentiso_core::network::NetworkPolicy;
use agentiso_net::flow::Limits;
use agentiso_net::flow::log::FlowEvent;
use tokio::net::UdpSocket;

use crate::frames::{ipv4_frame, udp};
use crate::guest::Guest;
use crate::world::{GATEWAY, TestVm, World, eventually, internet, public};

fn send(vm: &TestVm, guest: &Guest, port: u16, to: SocketAddrV4, payload: &[u8]) {
    let body = udp(port, to.port(), payload);
    guest.send_frame(&ipv4_frame(vm.identity.mac, vm.identity.address, *to.ip(), 17, &body, 0));
}

/// The payload of the first datagram that arrived at this port.
async fn received(guest: &Guest, port: u16) -> Vec<u8> {
    let mine = |packet: &Vec<u8>| packet[9] == 17 && packet[22..24] == port.to_be_bytes();
    let packet = eventually(|| guest.others().into_iter().find(mine)).await;
    packet[28..].to_vec()
}

/// A server that sends every datagram back.
async fn echo() -> std::net::SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut space = vec![0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut space).await {
            socket.send_to(&space[..length], from).await.unwrap();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagram_answers_return_to_their_source_port() {
    let world = World::new();
    world.route(public(123), echo().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    send(&vm, &guest, 4001, public(123), b"first");
    send(&vm, &guest, 4002, public(123), &[5; 40_000]);
    assert_eq!(received(&guest, 4001).await, b"first");
    assert_eq!(received(&guest, 4002).await, [5; 40_000]);
    assert_eq!(vm.attachment.open_flows(), 2);
    vm.guard.set_policy(NetworkPolicy::default());
    eventually(|| (vm.attachment.open_flows() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_udp_port_is_reported_unreachable() {
    let world = World::new();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    world.route(public(123), socket.local_addr().unwrap());
    drop(socket);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    send(&vm, &guest, 4001, public(123), b"anybody?");
    let message = eventually(|| guest.others().into_iter().next()).await;
    assert_eq!((message[9], message[20], message[21]), (1, 3, 3));
    assert_eq!(message[48..52], [4001_u16.to_be_bytes(), 123_u16.to_be_bytes()].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oldest_association_makes_room() {
    let world = World::with(|settings| settings.limits = Limits { associations: 4, ..Limits::DEFAULT });
    world.route(public(123), echo().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    for port in 4001..4013 {
        send(&vm, &guest, port, public(123), &port.to_be_bytes());
        assert_eq!(received(&guest, port).await, port.to_be_bytes());
        assert!(vm.attachment.open_flows() <= 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_answered_over_udp_and_tcp() {
    let world = World::new();
    let vm = world.vm(2, NetworkPolicy::default());
    let guest = vm.guest().await;
    let service = SocketAddrV4::new(GATEWAY, 53);
    send(&vm, &guest, 4001, service, b"a query over UDP");
    assert_eq!(received(&guest, 4001).await, b"a query over UDP");
    send(&vm, &guest, 4002, service, b"refuse this");
    let refused = vm.recorded(FlowEvent::Refused).await;
    assert_eq!(
        (refused.name.as_deref(), refused.port, refused.guest_port),
        (Some("refused"), Some(53), Some(4002))
    );

    let stream = guest.open(service).await.unwrap();
    for query in [&b"a query over TCP"[..], &[9; 30_000]] {
        let message = [&(query.len() as u16).to_be_bytes()[..], query].concat();
        stream.write_all(&message).await.unwrap();
        assert_eq!(stream.read_exact(message.len()).await.unwrap(), message);
    }
    stream.end_writing();
    assert!(stream.read_to_end().await.unwrap().is_empty());
    eventually(|| (vm.attachment.open_flows() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_gateway_answers_a_ping() {
    let world = World::new();
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let mut ping = vec![8, 0, 0, 0, 0, 1, 0, 2, 1, 2, 3, 4];
    let sum = ping.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    ping[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    for target in [GATEWAY, Ipv4Addr::new(198, 51, 100, 9)] {
        guest.send_frame(&ipv4_frame(vm.identity.mac, vm.identity.address, target, 1, &ping, 0));
    }
    let answers = eventually(|| Some(guest.others()).filter(|answers| answers.len() == 2)).await;
    assert_eq!((answers[0][20], &answers[0][24..]), (0, &ping[4..]));
    assert_eq!((answers[1][20], answers[1][21]), (3, 13));
}
