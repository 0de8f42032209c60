//! Reconnects of QEMU, and VMs that end and are detached.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use agentiso_core::network::NetworkPolicy;
use agentiso_net::flow::NetIdentity;
use agentiso_net::flow::log::FlowEvent;
use agentiso_net::gateway::AttachError;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::world::{GATEWAY, World, echo_server, eventually, internet, public};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_serves_qemu_after_reconnect() {
    let world = World::new();
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, internet());
    for _ in 0..5 {
        let guest = vm.guest().await;
        let stream = guest.open(public(7)).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(stream.read_exact(5).await.unwrap(), b"hello");
    }
    // The newest connection counts, even if the one before it still exists.
    let (_old, new) = (vm.guest().await, vm.guest().await);
    assert!(new.open(public(7)).await.is_ok());
}

/// Waits for the end of a connection and returns its error.
async fn end_of(stream: &mut TcpStream) -> ErrorKind {
    let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_u8()).await;
    ended.expect("it is told at once").unwrap_err().kind()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_end_with_their_vm_not_its_socket() {
    let world = World::new();
    let policy = NetworkPolicy { allow_inter_vm: true, ..internet() };
    let (vm, other) = (world.vm(2, policy.clone()), world.vm(3, policy));
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.route(public(80), server.local_addr().unwrap());
    let forward = vm.attachment.add_forward(8080, None, &BTreeSet::new()).unwrap();
    let at_forward = (Ipv4Addr::LOCALHOST, forward.host_port);

    let guest = vm.guest().await;
    let (opened, accepted) = tokio::join!(guest.open(public(80)), server.accept());
    let (_opened, (mut outside, _)) = (opened.unwrap(), accepted.unwrap());
    let listener = guest.listen(8080);
    let mut client = TcpStream::connect(at_forward).await.unwrap();
    listener.opened().await.unwrap();
    let neighbour = other.guest().await;
    let from_neighbour = guest.listen(80);
    let to_guest = neighbour.open(SocketAddrV4::new(vm.identity.address, 80)).await.unwrap();
    from_neighbour.opened().await.unwrap();
    let at_neighbour = neighbour.listen(81);
    let _to_neighbour = guest.open(SocketAddrV4::new(other.identity.address, 81)).await.unwrap();
    at_neighbour.opened().await.unwrap();

    // QEMU connects again, as after a restart of the daemon.
    drop(guest);
    let _guest = vm.guest().await;
    assert_eq!(vm.attachment.open_flows(), 2);
    let silent = tokio::time::timeout(Duration::from_millis(50), outside.read_u8()).await;
    assert!(silent.is_err(), "nobody is told anything");

    vm.attachment.vacate().await;
    assert_eq!(vm.attachment.open_flows(), 0);
    assert_eq!(end_of(&mut outside).await, ErrorKind::ConnectionReset);
    assert_eq!(end_of(&mut client).await, ErrorKind::ConnectionReset);
    for stream in [&to_guest, &at_neighbour] {
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(vm.find(FlowEvent::Closed).len(), 3);

    // No VM runs, and new connections are refused at once.
    let late = match TcpStream::connect(at_forward).await {
        Ok(mut late) => end_of(&mut late).await,
        // The reset came before `connect` returned.
        Err(error) => error.kind(),
    };
    assert_eq!(late, ErrorKind::ConnectionReset);
    assert_eq!(
        vm.recorded(FlowEvent::Refused).await.message.as_deref(),
        Some("the workspace is not running")
    );
    let _begun = neighbour.begin(SocketAddrV4::new(vm.identity.address, 80), 4096);
    let refused = other.recorded(FlowEvent::Refused).await;
    assert_eq!(refused.message.as_deref(), Some("the other VM is not running"));

    // The next VM starts afresh.
    vm.attachment.occupy();
    let guest = vm.guest().await;
    let listener = guest.listen(8080);
    let _client = TcpStream::connect(at_forward).await.unwrap();
    listener.opened().await.unwrap();
    let (opened, accepted) = tokio::join!(guest.open(public(80)), server.accept());
    opened.unwrap().write_all(b"hello").await.unwrap();
    assert_eq!(accepted.unwrap().0.read_u8().await.unwrap(), b'h');
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_vm_leaves_nothing_at_the_gateway() {
    let world = World::new();
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.route(public(80), server.local_addr().unwrap());
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let (stream, accepted) = tokio::join!(guest.open(public(80)), server.accept());
    let (_stream, (mut accepted, _)) = (stream.unwrap(), accepted.unwrap());
    // A connection that never gets an answer.
    let _waiting = guest.begin(public(81), 4096);
    let _listener = guest.listen(8080);
    let forward = vm.attachment.add_forward(8080, None, &BTreeSet::new()).unwrap();
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, forward.host_port)).await.unwrap();
    eventually(|| (vm.attachment.open_flows() == 3).then_some(())).await;

    // `detach` returns when the last task has ended.
    tokio::time::timeout(Duration::from_secs(5), vm.attachment.detach()).await.unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, forward.host_port)).await.is_err());
    assert!(UnixStream::connect(&vm.socket).await.is_err());
    assert_eq!(accepted.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(client);
    let closed = vm.log.tail(100).into_iter().filter(|record| record.event == FlowEvent::Closed).count();
    assert!(closed >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_belongs_to_one_attached_vm() {
    let world = World::new();
    let vm = world.vm(2, internet());
    let dir = tempfile::tempdir().unwrap();
    let attach = |address, name: &str| {
        let listener = UnixListener::bind(dir.path().join(name)).unwrap();
        let identity = NetIdentity { name: name.to_owned(), mac: [2; 6], address };
        world.gateway.attach(identity, vm.guard.clone(), vm.log.clone(), listener)
    };
    assert!(matches!(attach(vm.identity.address, "a"), Err(AttachError::Taken { .. })));
    assert!(matches!(attach(GATEWAY, "b"), Err(AttachError::Foreign { .. })));
    assert!(matches!(attach(Ipv4Addr::new(192, 168, 0, 2), "c"), Err(AttachError::Foreign { .. })));
    let address = vm.identity.address;
    drop(vm.attachment);
    assert!(attach(address, "d").is_ok());
}
