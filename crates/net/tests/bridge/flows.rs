//! Flows that the kernel carries by itself are logged as the gateway would log them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use agentiso_net::flow::log::{FlowEvent, FlowLog, FlowRecord};
use agentiso_net::policy::{Guard, HostAddresses};
use serde_json::json;

use crate::namespace::sh;
use crate::server::{Internet, SERVER};
use crate::world::{GATEWAY, TestVm, attach, eventually, in_namespace, in_world, open, policy};

/// The log of flows to a port, without the parts that differ from run to run.
fn logged(vm: &TestVm, port: u16) -> Vec<String> {
    let records = vm.log.tail(1000);
    let about = records.iter().filter(|record| record.port == Some(port));
    about.map(line).collect()
}

fn line(record: &FlowRecord) -> String {
    let text = record.to_string();
    let text = text.split_once(' ').map_or(text.as_str(), |(_, rest)| rest);
    match record.guest_port {
        Some(port) => text.replace(&format!(" from port {port}"), ""),
        None => text.to_owned(),
    }
}

/// Reads each connection to its end and answers with this many bytes.
fn answer(listener: TcpListener, bytes: usize) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard).and_then(|_| stream.write_all(&vec![b'y'; bytes]));
        }
    });
}

fn echo(socket: UdpSocket) {
    thread::spawn(move || {
        let mut space = [0; 2000];
        while let Ok((length, client)) = socket.recv_from(&mut space) {
            let _ = socket.send_to(&space[..length], client);
        }
    });
}

#[test]
fn vm_connection_is_logged_by_its_opener() {
    in_world(|world| async move {
        let open = json!({"allow_inter_vm": true});
        let one = world.vm(2, open.clone()).await;
        let two = world.vm(3, open).await;
        answer(two.guest.listen(80).await, 300_000);
        for _ in 0..2 {
            let mut stream = one.guest.connect(two.identity.address, 80).await.unwrap();
            let got = one.guest.run(move || {
                stream.write_all(&[b'x'; 70_000]).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                got.len()
            });
            assert_eq!(got.await, 300_000);
        }
        let opened = "opened tcp 10.42.0.3:80 (vm3) by allow_inter_vm";
        let closed = "closed tcp 10.42.0.3:80 (vm3) by allow_inter_vm, 70000 bytes up, 300000 bytes down";
        eventually(|| logged(&one, 80).len() == 4, || one.log()).await;
        let mut lines = logged(&one, 80);
        lines.sort_unstable();
        assert_eq!(lines, [closed, closed, opened, opened]);
        assert_eq!(two.log(), "", "who did not open it has nothing in its log");

        // A port without a listener.
        let _ = one.guest.connect(two.identity.address, 81).await.unwrap_err();
        one.logs("opened tcp 10.42.0.3:81").await;
        one.logs("0 bytes up, 0 bytes down: reset by the other side").await;
    });
}

#[test]
fn bridged_datagrams_are_logged_until_disallowed() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_domains": ["good.test"], "allow_inter_vm": true})).await;
        let two = world.vm(3, json!({"allow_inter_vm": true})).await;
        assert_eq!(one.guest.ask("good.test").await, Some(SERVER));
        echo(two.guest.run(|| UdpSocket::bind("0.0.0.0:9").unwrap()).await);
        let outside = one.guest.datagrams(SERVER, 7).await;
        let inside = one.guest.datagrams(two.identity.address, 9).await;
        for _ in 0..3 {
            assert_eq!(one.guest.echo(&outside, b"seven..").await.unwrap(), b"seven..");
            assert_eq!(one.guest.echo(&inside, b"hi").await.unwrap(), b"hi");
        }
        let out = "udp 198.51.100.2:7 (good.test) by allow_domains good.test";
        let neighbour = "udp 10.42.0.3:9 (vm3) by allow_inter_vm";
        one.logs(" opened udp 198.51.100.2:7").await;
        one.logs(" opened udp 10.42.0.3:9").await;

        two.allow(json!({}));
        let why = "the other VM has no allow_inter_vm, and the two are not in the same team";
        let ended = format!("closed {neighbour}, 6 bytes up, 6 bytes down: {why}");
        assert_eq!(logged(&one, 9), [format!("opened {neighbour}"), ended]);
        one.allow(json!({"allow_domains": ["other.test"]}));
        let lines = logged(&one, 7);
        let ended =
            format!("closed {out}, 21 bytes up, 21 bytes down: good.test (198.51.100.2:7) is not allowed");
        assert_eq!(lines[0], format!("opened {out}"));
        assert!(lines.len() == 2 && lines[1].starts_with(&ended), "{lines:?}");

        // The same flow again, when it is allowed again.
        one.allow(json!({"allow_internet": true}));
        assert_eq!(one.guest.echo(&outside, b"again").await.unwrap(), b"again");
        eventually(|| logged(&one, 7).len() == 3, || one.log()).await;
        assert!(sh("cat /proc/net/nf_conntrack").contains("dport=7"));
        one.port.vacate().await;
        let ended = "closed udp 198.51.100.2:7 (good.test) by allow_internet, 5 bytes up, 5 bytes down: the VM is gone";
        assert_eq!(logged(&one, 7)[3], ended);
        let left = sh("cat /proc/net/nf_conntrack");
        assert!(!left.contains("dport=7 "), "what comes back reaches no other VM: {left}");
    });
}

#[test]
fn connections_between_vms_end_with_either_vm() {
    in_world(|world| async move {
        let open = json!({"allow_inter_vm": true});
        let one = world.vm(2, open.clone()).await;
        let two = world.vm(3, open).await;
        let server = two.guest.listen(80).await;
        let stream = one.guest.connect(two.identity.address, 80).await.unwrap();
        let _accepted = two.guest.run(move || server.accept().unwrap()).await;
        one.logs("opened tcp").await;
        two.port.vacate().await;
        let lines = logged(&one, 80);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].ends_with("0 bytes up, 0 bytes down: the other VM is gone"), "{lines:?}");
        assert!(!sh("cat /proc/net/nf_conntrack").contains("dport=80 "));
        drop(stream);
    });
}

#[test]
fn next_daemon_logs_surviving_flows_as_opened() {
    in_namespace(|| async {
        let internet = Internet::new().await;
        let bridge = open().unwrap();
        let allowed = json!({"allow_internet": true});
        let first = attach(&bridge, 2, allowed.clone()).await;
        let socket = first.guest.datagrams(SERVER, 7).await;
        assert_eq!(first.guest.echo(&socket, b"before").await.unwrap(), b"before");
        first.logs("opened udp").await;
        let TestVm { guest, port, log, identity, tap } = first;
        drop(port);
        assert!(log.tail(1)[0].to_string().contains("6 bytes up, 6 bytes down"), "{:?}", log.tail(9));
        drop(bridge);
        // Lets its tasks, which listen to the kernel, end.
        tokio::task::yield_now().await;

        let bridge = open().unwrap();
        let log = FlowLog::new();
        let guard = Guard::new(policy(allowed), HostAddresses::fixed([]), GATEWAY);
        let port = bridge.attach(identity.clone(), &tap, guard, log.clone()).unwrap();
        let next = TestVm { guest, port, log, identity, tap };
        assert_eq!(next.guest.echo(&socket, b"on").await.unwrap(), b"on");
        next.logs("opened udp").await;
        next.port.vacate().await;
        let line = "udp 198.51.100.2:7 by allow_internet";
        let closed = format!("closed {line}, 2 bytes up, 2 bytes down: the VM is gone");
        assert_eq!(logged(&next, 7), [format!("opened {line}"), closed]);
        drop(internet);
    });
}

#[test]
fn flow_flood_leaves_other_vms_unharmed() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true})).await;
        let two = world.vm(3, json!({"allow_internet": true})).await;
        one.guest
            .run(|| {
                for port in 1..=10_000_u16 {
                    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                    // Refused beyond the limit of open flows.
                    let _ = socket.send_to(b"flood", (SERVER, 10_000 + port));
                }
            })
            .await;
        let socket = two.guest.datagrams(SERVER, 7).await;
        assert_eq!(two.guest.echo(&socket, b"hi").await.unwrap(), b"hi");
        two.logs("opened udp 198.51.100.2:7").await;
        let count = |event| one.log.tail(usize::MAX).iter().filter(|record| record.event == event).count();
        eventually(|| count(FlowEvent::Opened) >= 1000, || one.log()).await;
        assert!(one.log.tail(usize::MAX).len() <= 2 * agentiso_net::flow::log::KEPT);
        two.port.vacate().await;
        assert_eq!(logged(&two, 7).len(), 2);
    });
}

#[test]
fn flows_beyond_the_log_capacity_are_refused() {
    in_world(|world| async move {
        // In this namespace connection tracking forgets flows sooner than the log does.
        sh(
            "for name in udp_timeout udp_timeout_stream; do echo 1 > /proc/sys/net/netfilter/nf_conntrack_$name; done",
        );
        let one = world.vm(2, json!({"allow_internet": true})).await;
        let two = world.vm(3, json!({"allow_internet": true})).await;
        let mut ports = (10_000..60_000_u16).cycle().take(200_000);
        let is_full = || one.log().contains("the VM has more open flows than its log can count");
        loop {
            let some: Vec<u16> = ports.by_ref().take(2000).collect();
            assert!(!some.is_empty(), "there is always room for more: {}", one.log());
            one.guest
                .run(move || {
                    for port in some {
                        let _ = UdpSocket::bind(("0.0.0.0", port)).unwrap().send_to(b"flood", (SERVER, 7));
                    }
                })
                .await;
            // As long as connection tracking counts them; it removes them later.
            tokio::time::sleep(Duration::from_millis(1200)).await;
            let socket = one.guest.datagrams(SERVER, 7).await;
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let answered = one.guest.echo(&socket, b"one more").await;
            // The guest gets an error, too.
            if is_full() && answered.is_err_and(|error| error.kind() == ErrorKind::HostUnreachable) {
                break;
            }
        }
        let socket = two.guest.datagrams(SERVER, 7).await;
        assert_eq!(two.guest.echo(&socket, b"hi").await.unwrap(), b"hi");
        two.logs("opened udp 198.51.100.2:7").await;
    });
}
