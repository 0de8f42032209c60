//! Connections of a VM to the outside: only those that are allowed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;

use crate::guest::SOON;
use crate::server::{ENDLESS_PORT, HOST, SERVER};
use crate::world::{GATEWAY, attach_on, eventually, in_world};

#[test]
fn default_policy_refuses_at_once_on_bridge() {
    in_world(|world| async move {
        let one = world.vm(2, json!({})).await;
        let began = Instant::now();
        assert_eq!(one.guest.refusal(SERVER, 80).await, ErrorKind::ConnectionRefused);
        assert_eq!(one.guest.refusal(GATEWAY, 22).await, ErrorKind::ConnectionRefused);
        assert_eq!(one.guest.refusal(HOST, 80).await, ErrorKind::ConnectionRefused);
        let socket = one.guest.datagrams(SERVER, 7).await;
        let error = one.guest.echo(&socket, b"hi").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{error}");
        assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
        assert_eq!(one.guest.ask("good.test").await, None);
        one.logs("refused tcp 198.51.100.2:80").await;
        one.logs("this workspace has no internet").await;
        one.logs("refused udp 198.51.100.2:7").await;
        one.logs("good.test is not allowed").await;
        assert!(world.internet.clients().is_empty());
    });
}

#[test]
fn resolved_name_opens_only_connections_naming_it() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_domains": ["good.test"]})).await;
        assert_eq!(one.guest.page(SERVER, "good.test").await, "refused", "not resolved yet");
        assert_eq!(one.guest.ask("bad.test").await, None);
        assert_eq!(one.guest.ask("good.test").await, Some(SERVER));
        assert_eq!(one.guest.page(SERVER, "good.test").await, "xxxxx");
        assert_ne!(one.guest.page(SERVER, "bad.test").await, "xxxxx", "another name at the same address");
        one.logs("the connection names bad.test").await;
        one.logs("opened tcp 198.51.100.2:80 (good.test)").await;
        assert_eq!(one.guest.refusal(Ipv4Addr::new(198, 51, 100, 3), 80).await, ErrorKind::ConnectionRefused);
        let socket = one.guest.datagrams(SERVER, 7).await;
        assert_eq!(one.guest.echo(&socket, b"hi").await.unwrap(), b"hi", "datagrams too");
        let quic = one.guest.datagrams(SERVER, 443).await;
        assert!(one.guest.echo(&quic, b"hi").await.is_err(), "but none that hide their name");
        assert_eq!(world.internet.clients()[0], HOST.to_string(), "the host speaks for its VMs");
    });
}

#[test]
fn upgraded_connection_passes_after_its_answer() {
    const REQUEST: &[u8] =
        b"GET /upgrade HTTP/1.1\r\nHost: good.test\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_domains": ["good.test"]})).await;
        assert_eq!(one.guest.ask("good.test").await, Some(SERVER));
        let mut stream = one.guest.connect(SERVER, 80).await.unwrap();
        let heard = one.guest.run(move || {
            // Bytes after the request may leave only when the server has agreed.
            stream.write_all(&[REQUEST, b"no request"].concat()).unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(b"no request") {
                let mut space = [0; 1000];
                let length = stream.read(&mut space).unwrap();
                assert!(length > 0, "{}", String::from_utf8_lossy(&heard));
                heard.extend_from_slice(&space[..length]);
            }
            heard
        });
        assert!(heard.await.starts_with(b"HTTP/1.1 101 "));
    });
}

#[test]
fn nameless_connections_are_refused_under_deny_list() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true, "deny_domains": ["bad.test"]})).await;
        assert_eq!(one.guest.ask("good.test").await, Some(SERVER));
        assert_eq!(one.guest.page(SERVER, "good.test").await, "xxxxx");
        assert_ne!(one.guest.page(SERVER, "198.51.100.2").await, "xxxxx", "an address is no name");
        one.logs("\"198.51.100.2\" is not a host name").await;
        for (first, what) in [
            (&b"SSH-2.0-x\r\n\r\n"[..], "neither TLS nor HTTP nor git"),
            (b"\x80\x2e\x01\x03\x01\r\n\r\n", "TLS without a readable server name"),
        ] {
            let mut stream = one.guest.connect(SERVER, 80).await.unwrap();
            let heard = one.guest.run(move || {
                let mut heard = Vec::new();
                // The reset may come while it writes or while it reads.
                let _ = stream.write_all(first).and_then(|()| stream.read_to_end(&mut heard));
                heard
            });
            assert!(heard.await.is_empty(), "{what}");
            one.logs(what).await;
        }
        let socket = one.guest.datagrams(SERVER, 7).await;
        assert!(one.guest.echo(&socket, b"hi").await.is_err());
        one.logs("UDP carries no server name").await;
        assert_eq!(world.internet.datagrams.load(Ordering::SeqCst), 0);

        one.allow(json!({"allow_internet": true, "deny_domains": ["bad.test"], "allow_cidrs": [format!("{SERVER}:7")]}));
        let socket = one.guest.datagrams(SERVER, 7).await;
        assert_eq!(one.guest.echo(&socket, b"hi").await.unwrap(), b"hi", "that address was meant");
    });
}

#[test]
fn name_rules_open_single_ports() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_domains": ["good.test:81", "web.test:80"]})).await;
        assert_eq!(one.guest.ask("good.test").await, Some(SERVER));
        assert_eq!(one.guest.page(SERVER, "good.test").await, "refused");
        // Another name of the same address, with other ports.
        assert_eq!(one.guest.ask("web.test").await, Some(SERVER));
        assert_eq!(one.guest.page(SERVER, "web.test").await, "xxxxx");
        one.allow(json!({"allow_internet": true, "deny_domains": ["web.test:80", "good.test:80"]}));
        assert_eq!(one.guest.page(SERVER, "web.test").await, "refused", "all its names are denied there");
        assert_eq!(one.guest.ask("third.test").await, Some(SERVER));
        assert_eq!(one.guest.page(SERVER, "third.test").await, "xxxxx", "one of its names is not");
        assert_ne!(one.guest.page(SERVER, "web.test").await, "xxxxx");
    });
}

#[test]
fn internet_excludes_the_host_on_bridge() {
    in_world(|world| async move {
        let service = TcpListener::bind((HOST, 8000)).unwrap();
        let hidden = UdpSocket::bind((HOST, 8000)).unwrap();
        hidden.set_nonblocking(true).unwrap();
        let one = world.vm(2, json!({"allow_internet": true})).await;
        assert_eq!(one.guest.page(SERVER, "any.test").await, "xxxxx");
        for special in ["169.254.169.254", "192.168.1.1", "10.43.0.1", "0.0.0.1", "100.64.0.1"] {
            let refusal = one.guest.refusal(special.parse().unwrap(), 80).await;
            assert_eq!(refusal, ErrorKind::ConnectionRefused, "{special}");
        }
        assert_eq!(one.guest.refusal(HOST, 8000).await, ErrorKind::ConnectionRefused);
        assert_eq!(one.guest.refusal(GATEWAY, 8000).await, ErrorKind::ConnectionRefused);
        one.logs("an address of the host itself").await;
        let socket = one.guest.datagrams(HOST, 8000).await;
        assert!(one.guest.echo(&socket, b"hi").await.is_err());
        assert!(hidden.recv(&mut [0; 10]).is_err(), "nothing has come");

        one.allow(json!({"allow_internet": true, "allow_cidrs": [format!("{HOST}:8000")]}));
        let mut stream = one.guest.connect(HOST, 8000).await.unwrap();
        let said = one.guest.run(move || {
            stream.write_all(b"hello").unwrap();
            let mut text = [0; 5];
            service.accept().unwrap().0.read_exact(&mut text).unwrap();
            text
        });
        assert_eq!(&said.await, b"hello");
        one.allow(json!({"allow_internet": true, "deny_cidrs": [format!("{SERVER}")]}));
        assert_eq!(one.guest.page(SERVER, "any.test").await, "refused");
    });
}

#[test]
fn policy_change_ends_open_bridge_flows() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true})).await;
        let mut download = one.guest.connect(SERVER, 80).await.unwrap();
        let begun = one.guest.run(move || {
            download.write_all(b"GET /999999999999 HTTP/1.0\r\n\r\n").unwrap();
            download.read_exact(&mut vec![0; 64 << 10]).unwrap();
            download
        });
        let mut download = begun.await;
        let socket = one.guest.datagrams(SERVER, 7).await;
        assert_eq!(one.guest.echo(&socket, b"stream").await.unwrap(), b"stream");
        // The server starts its stream at some later time.
        let began = Instant::now();
        while one.guest.echo(&socket, b"x").await.unwrap() != b"more" {
            assert!(began.elapsed() < SOON, "it does not go on sending");
        }

        one.allow(json!({"allow_cidrs": ["192.0.2.1"]}));
        let began = Instant::now();
        let ended = tokio::task::spawn_blocking(move || {
            let mut space = vec![0; 64 << 10];
            while began.elapsed() < SOON && download.read(&mut space).is_ok_and(|length| length > 0) {}
        });
        ended.await.unwrap();
        assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
        one.logs("closed tcp 198.51.100.2:80").await;
        // The server's stream no longer arrives.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let heard = one.guest.heard(b"more");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(heard > 0);
        assert_eq!(one.guest.heard(b"more"), heard);
    });
}

#[test]
fn server_refusal_is_logged() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true})).await;
        // The reset comes after the connection was accepted, and may still be seen before `connect` returns.
        let refused = match one.guest.connect(SERVER, 81).await {
            Ok(mut stream) => one.guest.run(move || stream.read(&mut [0; 1])).await.unwrap_err(),
            Err(refused) => refused,
        };
        assert_eq!(refused.kind(), ErrorKind::ConnectionReset);
        one.logs("the server refused the connection").await;
    });
}

#[test]
fn busy_vm_does_not_delay_another() {
    in_world(|world| async move {
        // The VM has a thread of its own, as in the daemon.
        let lane =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let busy = attach_on(&world.bridge, 2, json!({"allow_internet": true}), lane.handle()).await;
        let other = world.vm(3, json!({"allow_internet": true})).await;
        let (release, released) = std::sync::mpsc::channel::<()>();
        let working = lane.spawn(async move { released.recv() });
        let mut waiting = pin!(busy.guest.page(SERVER, "any.test"));
        assert!(timeout(Duration::from_secs(1), &mut waiting).await.is_err(), "another thread carries it");
        assert_eq!(other.guest.page(SERVER, "any.test").await, "xxxxx");
        drop(release);
        assert!(working.await.unwrap().is_err());
        assert_eq!(waiting.await, "xxxxx");
        busy.port.detach().await;
        lane.shutdown_background();
    });
}

/// Resident memory of this process, in MiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096) >> 20
}

#[test]
fn connections_have_a_bounded_memory_and_return_it() {
    const CONNECTIONS: usize = 400;
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true})).await;
        one.guest.stop_listening();
        let before = resident();
        // After the first byte they read nothing, so the server's bytes fill the relay.
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = one.guest.connect(SERVER, ENDLESS_PORT).await.unwrap();
            let begun = one.guest.run(move || stream.read_exact(&mut [0]).map(|()| stream));
            streams.push(begun.await.unwrap());
        }
        let (used, most) = one.port.buffered();
        assert!(used > 16 << 20 && used <= most && most <= 40 << 20, "{used} of {most}");
        let mut grown = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = resident().saturating_sub(before);
            if now <= grown {
                break;
            }
            grown = now;
        }
        assert!(grown < 60, "{grown} MiB for {CONNECTIONS} connections");
        // Some end by themselves, the others with their VM.
        streams.drain(..CONNECTIONS / 2);
        eventually(|| one.port.buffered().0 < used / 2, || format!("{:?} of {used}", one.port.buffered()))
            .await;
        one.port.vacate().await;
        assert_eq!(one.port.buffered().0, 0);
        let left = resident().saturating_sub(before);
        assert!(left < 8, "{left} MiB are left of {grown}");
    });
}

#[test]
fn bridge_bandwidth_limit_holds_both_ways() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true, "bandwidth_mbps": 8})).await;
        let mut stream = one.guest.connect(SERVER, 80).await.unwrap();
        let began = Instant::now();
        let read = one.guest.run(move || {
            stream.write_all(b"GET /3000000 HTTP/1.0\r\n\r\n").unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap()
        });
        assert_eq!(read.await, 3_000_000);
        // One megabyte per second; some bytes may wait in queues.
        let took = began.elapsed();
        assert!(took > Duration::from_millis(1500), "{took:?}");

        // Ten times as much as may pass in a second: most of it is dropped.
        let flood = one.guest.datagrams(SERVER, 7).await;
        one.guest.run(move || (0..10_000).for_each(|_| drop(flood.send(&[7; 1200])))).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let arrived = world.internet.datagrams.load(Ordering::SeqCst);
        assert!((100..6000).contains(&arrived), "{arrived} of 10000");
    });
}
