//! VMs that send spoofed, invalid or too many frames.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::namespace::sh;
use crate::server::SERVER;
use crate::world::{BRIDGE, GATEWAY, in_world};

/// The bridge's hardware address.
const GATEWAY_MAC: [u8; 6] = agentiso_net::flow::GATEWAY_MAC;

fn ether(to: [u8; 6], from: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), payload].concat()
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A datagram, without a checksum of its own.
fn datagram(from: Ipv4Addr, to: Ipv4Addr, port: u16, text: &[u8]) -> Vec<u8> {
    let length = (28 + text.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(4000_u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend((length - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(text);
    packet
}

fn arp(operation: u8, mac: [u8; 6], address: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![0, 1, 8, 0, 6, 4, 0, operation];
    message.extend(mac);
    message.extend(address.octets());
    message.extend([0; 6]);
    message.extend(target.octets());
    message
}

/// Waits long enough for anything that was let through to arrive.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

#[test]
fn bridge_drops_spoofed_frames() {
    in_world(|world| async move {
        let all = json!({"allow_internet": true, "allow_inter_vm": true});
        let one = world.vm(2, all.clone()).await;
        let two = world.vm(3, all).await;
        let own = one.identity.mac;
        let count = || world.internet.datagrams.load(Ordering::SeqCst);
        let honest = ether(GATEWAY_MAC, own, 0x800, &datagram(one.identity.address, SERVER, 7, b"honest"));
        one.guest.send_frame(&honest);
        settle().await;
        assert_eq!(count(), 1, "this is what a frame must look like");

        let as_two = datagram(two.identity.address, SERVER, 7, b"as the other");
        let outside = datagram(Ipv4Addr::new(198, 51, 100, 77), SERVER, 7, b"as anybody");
        let as_host = datagram(GATEWAY, SERVER, 7, b"as the host");
        for packet in [as_two.clone(), outside, as_host] {
            one.guest.send_frame(&ether(GATEWAY_MAC, own, 0x800, &packet));
        }
        one.guest.send_frame(&ether(GATEWAY_MAC, two.identity.mac, 0x800, &as_two));
        one.guest.send_frame(&ether(
            GATEWAY_MAC,
            [2, 9, 9, 9, 9, 9],
            0x800,
            &datagram(one.identity.address, SERVER, 7, b"x"),
        ));
        // With a VLAN tag, and in IPv6.
        let tagged = [&[0, 5, 8, 0][..], &datagram(one.identity.address, SERVER, 7, b"tagged")].concat();
        one.guest.send_frame(&ether(GATEWAY_MAC, own, 0x8100, &tagged));
        one.guest.send_frame(&ether(
            two.identity.mac,
            own,
            0x86dd,
            b"sixth-version-of-the-protocol-and-more-of-it",
        ));
        settle().await;
        assert_eq!(count(), 1, "nothing else came through");
        assert_eq!(two.guest.heard(b"sixth-version"), 0);
        assert_eq!(two.guest.heard(&[0x86, 0xdd, 0x60]), 0, "the host does not speak IPv6 either");
        // The other VM still works.
        let socket = two.guest.datagrams(SERVER, 7).await;
        assert_eq!(two.guest.echo(&socket, b"hi").await.unwrap(), b"hi");
    });
}

#[test]
fn arp_spoofing_and_direct_frames_have_no_effect() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true})).await;
        let two = world.vm(3, json!({"allow_internet": true})).await;
        let before = sh(&format!("ip neigh show dev {BRIDGE} | sort"));
        let everybody = [0xff; 6];
        for (operation, to) in [(1, everybody), (2, everybody), (2, two.identity.mac), (2, GATEWAY_MAC)] {
            // ARP claims to be the gateway and the other VM.
            for victim in [GATEWAY, two.identity.address] {
                let message = arp(operation, one.identity.mac, victim, victim);
                one.guest.send_frame(&ether(to, one.identity.mac, 0x806, &message));
            }
        }
        // Frames straight to the other card, and to all.
        let straight = datagram(one.identity.address, two.identity.address, 9, b"straight-to-you");
        one.guest.send_frame(&ether(two.identity.mac, one.identity.mac, 0x800, &straight));
        one.guest.send_frame(&ether(everybody, one.identity.mac, 0x800, &straight));
        // Truncated frames, and frames of unknown types.
        for garbage in
            [&[0_u8; 14][..], &[0xff; 20], &ether(GATEWAY_MAC, one.identity.mac, 0x800, &[0x4f, 1, 2])]
        {
            one.guest.send_frame(garbage);
        }
        settle().await;
        assert_eq!(sh(&format!("ip neigh show dev {BRIDGE} | sort")), before);
        assert_eq!(two.guest.heard(b"straight-to-you"), 0);
        let claim = [&one.identity.mac[..], &GATEWAY.octets()].concat();
        assert_eq!(two.guest.heard(&claim), 0);
        let neighbours = two.guest.run(|| sh("ip neigh show dev eth0")).await;
        assert!(!neighbours.contains("02:00:00:00:00:02"), "{neighbours}");
        assert_eq!(two.guest.page(SERVER, "any.test").await, "xxxxx");
        assert_eq!(one.guest.heard(b"xxxxx"), 0, "what the other was sent");
        assert_eq!(one.guest.page(SERVER, "any.test").await, "xxxxx");
    });
}

#[test]
fn vm_cannot_fill_the_connection_tracking_table() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true})).await;
        for port in 1..=6000_u16 {
            let mut packet = datagram(one.identity.address, SERVER, 7, b"flood");
            packet[20..22].copy_from_slice(&port.to_be_bytes());
            one.guest.send_frame(&ether(GATEWAY_MAC, one.identity.mac, 0x800, &packet));
        }
        let count: usize = sh("cat /proc/sys/net/netfilter/nf_conntrack_count").trim().parse().unwrap();
        assert!((3000..4500).contains(&count), "{count}");
        let two = world.vm(3, json!({"allow_internet": true})).await;
        let socket = two.guest.datagrams(SERVER, 7).await;
        assert_eq!(two.guest.echo(&socket, b"hi").await.unwrap(), b"hi");
    });
}

#[test]
fn connection_flood_leaves_other_vms_unharmed() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_domains": ["good.test"]})).await;
        let two = world.vm(3, json!({"allow_internet": true})).await;
        one.guest.ask("good.test").await.unwrap();
        // A request that stops before it names its host.
        let mut slow = one.guest.connect(SERVER, 80).await.unwrap();
        slow.write_all(b"GET / HTTP/1.0\r\nHo").unwrap();
        let mut streams = Vec::new();
        for _ in 0..1200 {
            streams.push(one.guest.connect(SERVER, 80).await);
        }
        assert_eq!(two.guest.page(SERVER, "any.test").await, "xxxxx");
        one.logs("connections, which is").await;
        drop(streams);
        slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let ended = one.guest.run(move || slow.read(&mut [0; 10])).await;
        assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    });
}
