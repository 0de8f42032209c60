//! Connections between VMs, and from the host into a VM.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::guest::SOON;
use crate::server::SERVER;
use crate::world::in_world;

/// Sends a greeting on every connection.
fn greet(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"hello");
        }
    });
}

fn greeting(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.set_read_timeout(Some(SOON)).unwrap();
    match stream.read_to_string(&mut text) {
        Ok(_) => text,
        Err(error) => error.kind().to_string(),
    }
}

/// The bytes or the error that a client on the host gets.
async fn from_host(port: u16) -> String {
    let mut text = String::new();
    let told = async {
        let mut stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.read_to_string(&mut text).await
    };
    match told.await {
        Ok(_) => text,
        Err(error) => error.kind().to_string(),
    }
}

#[test]
fn bridged_vms_connect_only_if_both_allow() {
    in_world(|world| async move {
        let one = world.vm(2, json!({})).await;
        let two = world.vm(3, json!({})).await;
        greet(two.guest.listen(80).await);
        greet(two.guest.listen(81).await);
        let to = two.identity.address;
        assert_eq!(one.guest.refusal(to, 80).await, ErrorKind::ConnectionRefused);
        one.logs("this VM has no allow_inter_vm").await;
        one.allow(json!({"allow_inter_vm": true}));
        assert_eq!(one.guest.refusal(to, 80).await, ErrorKind::ConnectionRefused);
        assert_eq!(one.guest.ask("vm3").await, None);
        two.allow(json!({"allow_inter_vm": true}));
        assert_eq!(greeting(one.guest.connect(to, 80).await.unwrap()), "hello");
        // Answers pass although this side accepts no connections on that port.
        one.allow(json!({"allow_inter_vm": true, "allowed_ports": [1]}));
        two.allow(json!({"allow_inter_vm": true, "allowed_ports": [80]}));
        assert_eq!(greeting(one.guest.connect(to, 80).await.unwrap()), "hello");
        assert_eq!(one.guest.refusal(to, 81).await, ErrorKind::ConnectionRefused);
        one.logs("port 81 is not among").await;
        let third = world.vm(4, json!({"allow_internet": true})).await;
        assert_eq!(third.guest.refusal(to, 80).await, ErrorKind::ConnectionRefused);
        assert_eq!(third.guest.refusal(Ipv4Addr::new(10, 42, 9, 9), 80).await, ErrorKind::ConnectionRefused);
        // An open connection ends when one of them disallows it.
        two.allow(json!({"allow_inter_vm": true}));
        let quiet = two.guest.listen(82).await;
        let mut stream = one.guest.connect(to, 82).await.unwrap();
        let other_end = two.guest.run(move || quiet.accept().unwrap()).await;
        two.allow(json!({}));
        let ended = one.guest.run(move || {
            let written = stream.write_all(b"x");
            written.and_then(|()| stream.read(&mut [0; 1]))
        });
        assert_eq!(ended.await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(other_end);
        assert_eq!(one.guest.refusal(to, 80).await, ErrorKind::ConnectionRefused);
    });
}

#[test]
fn bridged_vms_of_one_group_connect() {
    in_world(|world| async move {
        let one = world.vm(2, json!({})).await;
        let two = world.vm(3, json!({})).await;
        greet(two.guest.listen(80).await);
        one.port.set_groups(["team".to_owned()].into());
        assert_eq!(one.guest.refusal(two.identity.address, 80).await, ErrorKind::ConnectionRefused);
        two.port.set_groups(["team".to_owned(), "other".to_owned()].into());
        assert_eq!(greeting(one.guest.connect(two.identity.address, 80).await.unwrap()), "hello");
    });
}

#[test]
fn relayed_connections_end_with_their_vm() {
    in_world(|world| async move {
        let one = world.vm(2, json!({"allow_internet": true})).await;
        let inside = one.guest.listen(8080).await;
        let forward = one.port.add_forward(8080, None, &BTreeSet::new()).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", forward.host_port)).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        let _served = one.guest.run(move || inside.accept().unwrap()).await;
        let mut out = one.guest.connect(SERVER, 80).await.unwrap();
        one.logs("opened tcp 198.51.100.2:80").await;

        one.port.vacate().await;
        let ended = tokio::task::spawn_blocking(move || client.read(&mut [0; 8])).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let ended = one.guest.run(move || out.read(&mut [0; 8])).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        one.logs("closed tcp 198.51.100.2:80").await;

        assert_eq!(from_host(forward.host_port).await, ErrorKind::ConnectionReset.to_string());
        one.logs("the workspace is not running").await;
        one.port.occupy();
        greet(one.guest.listen(8080).await);
        assert_eq!(from_host(forward.host_port).await, "hello");
    });
}

#[test]
fn bridge_forward_works_under_any_policy() {
    in_world(|world| async move {
        let one = world.vm(2, json!({})).await;
        greet(one.guest.listen(8080).await);
        let forward = one.port.add_forward(8080, None, &BTreeSet::new()).unwrap();
        let nothing = one.port.add_forward(8081, None, &BTreeSet::new()).unwrap();
        assert_eq!(from_host(forward.host_port).await, "hello");
        assert_ne!(from_host(nothing.host_port).await, "hello");
        one.logs("nothing listens on port 8081 in the guest").await;
        one.port.remove_forward(8080).unwrap().ended().await;
        assert_eq!(from_host(forward.host_port).await, ErrorKind::ConnectionRefused.to_string());
    });
}
