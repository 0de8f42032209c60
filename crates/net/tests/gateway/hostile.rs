//! Guests that send invalid, spoofed or too many frames.

use std::net::{Ipv4Addr, SocketAddrV4};

use agentiso_core::network::NetworkPolicy;
use agentiso_net::flow::GATEWAY_MAC;
use agentiso_net::flow::log::FlowEvent;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::frames::{ipv4_frame, udp};
use crate::guest::Guest;
use crate::world::{GATEWAY, TestVm, World, echo_server, eventually, internet, public};

const NAMES: SocketAddrV4 = SocketAddrV4::new(GATEWAY, 53);

/// Checks that the VM is still served: a query is answered.
async fn still_served(vm: &TestVm, guest: &Guest) {
    let before = guest.others().len();
    let body = udp(4999, 53, b"still there?");
    guest.send_frame(&ipv4_frame(vm.identity.mac, vm.identity.address, GATEWAY, 17, &body, 0));
    let answered = |packet: &Vec<u8>| packet.ends_with(b"still there?");
    eventually(|| guest.others()[before..].iter().any(answered).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoofed_frames_are_dropped_and_logged() {
    let world = World::new();
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let other = Ipv4Addr::new(10, 42, 0, 3);
    let other_mac = [0x52, 0x54, 0, 0, 0, 3];
    let query = udp(4001, 53, b"forged");
    guest.send_frame(&ipv4_frame(other_mac, vm.identity.address, GATEWAY, 17, &query, 0));
    guest.send_frame(&ipv4_frame(vm.identity.mac, other, GATEWAY, 17, &query, 0));
    // ARP claims to be 10.42.0.3, with the own and with another MAC address.
    for mac in [vm.identity.mac, other_mac] {
        let head = [&[0xff; 6][..], &vm.identity.mac, &[8, 6]].concat();
        let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac, &other.octets(), &[0; 6], &GATEWAY.octets()].concat();
        guest.send_frame(&[head, arp].concat());
    }
    still_served(&vm, &guest).await;
    assert_eq!(vm.attachment.counters().spoofed, 4);
    assert_eq!(vm.find(FlowEvent::Dropped).len(), 4);
    assert!(guest.others().iter().all(|packet| !packet.ends_with(b"forged")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_guest_is_held_to_its_frame_rate() {
    let world = World::with(|settings| settings.limits.frames = 100);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let began = std::time::Instant::now();
    let junk = [&GATEWAY_MAC[..], &vm.identity.mac, &[0x81, 0], &[0; 40]].concat();
    (0..200).for_each(|_| guest.send_frame(&junk));
    still_served(&vm, &guest).await;
    let took = began.elapsed();
    assert!(took > std::time::Duration::from_millis(1500), "{took:?}");
    assert_eq!(vm.attachment.counters().other, 200, "it waits, and nothing is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_and_multicast_are_dropped() {
    let world = World::new();
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let (mac, address) = (vm.identity.mac, vm.identity.address);
    let body = udp(4001, 53, b"in pieces");
    guest.send_frame(&ipv4_frame(mac, address, GATEWAY, 17, &body, 0x2000));
    guest.send_frame(&ipv4_frame(mac, address, GATEWAY, 17, &body, 0x0001));
    let mut ipv6 = [&GATEWAY_MAC[..], &mac, &[0x86, 0xdd]].concat();
    ipv6.extend([0x60; 40]);
    guest.send_frame(&ipv6);
    guest.send_frame(&[&GATEWAY_MAC[..], &mac, &[0x81, 0], &[0; 40]].concat());
    for many in [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::UNSPECIFIED, address] {
        guest.send_frame(&ipv4_frame(mac, address, many, 17, &body, 0));
    }
    let mut damaged = ipv4_frame(mac, address, GATEWAY, 17, &body, 0);
    damaged[24] ^= 0xff;
    guest.send_frame(&damaged);
    still_served(&vm, &guest).await;
    let counted = vm.attachment.counters();
    assert_eq!((counted.fragments, counted.ipv6, counted.other, counted.malformed), (2, 1, 5, 1));
    assert_eq!(guest.others().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_frame_length_ends_only_its_connection() {
    let world = World::new();
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, internet());
    for length in [0_u32, 13, 69_633, u32::MAX] {
        let guest = vm.guest().await;
        still_served(&vm, &guest).await;
        guest.send_bytes(&length.to_be_bytes());
        guest.send_bytes(&[0; 1000]);
    }
    let guest = vm.guest().await;
    assert!(guest.open(public(7)).await.is_ok());
}

/// Frames from nearly valid to random bytes.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let garbage = vec(any::<u8>(), 14..200);
    let typed = (prop_oneof![Just([8_u8, 0]), Just([8, 6])], vec(any::<u8>(), 0..100))
        .prop_map(|(kind, rest)| [&GATEWAY_MAC[..], &[0x52, 0x54, 0, 0, 0, 2], &kind, &rest].concat());
    let targets = prop_oneof![Just(GATEWAY), Just(*public(7).ip()), Just(Ipv4Addr::new(10, 42, 0, 3))];
    let packets = (prop_oneof![Just(1_u8), Just(6), Just(17), any::<u8>()], targets, vec(any::<u8>(), 0..80));
    let packet = packets.prop_map(|(protocol, target, body)| {
        ipv4_frame([0x52, 0x54, 0, 0, 0, 2], Ipv4Addr::new(10, 42, 0, 2), target, protocol, &body, 0x4000)
    });
    prop_oneof![garbage, typed, packet]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_frames_make_the_gateway_panic_or_hang(frames in vec(frame(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let policy = NetworkPolicy { allow_inter_vm: true, ..internet() };
            let (vm, _neighbour) = (world.vm(2, policy.clone()), world.vm(3, policy));
            let guest = vm.guest().await;
            for frame in &frames {
                guest.send_frame(frame);
            }
            still_served(&vm, &guest).await;
            drop(guest.open(NAMES).await.unwrap());
            vm.attachment.detach().await;
        });
    }
}
