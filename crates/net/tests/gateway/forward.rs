//! Forwards: ports of the loopback that lead into a guest.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::Ipv4Addr;

use agentiso_core::network::NetworkPolicy;
use agentiso_net::flow::log::FlowEvent;
use agentiso_net::flow::{Forward, ForwardError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{World, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_connects_host_clients_to_the_guest() {
    let world = World::new();
    let vm = world.vm(2, NetworkPolicy::default());
    let guest = vm.guest().await;
    let Forward { host_port, .. } = vm.attachment.add_forward(8080, None, &BTreeSet::new()).unwrap();
    assert!(host_port >= 1024);
    let other = vm.attachment.add_forward(8081, None, &BTreeSet::new()).unwrap();
    assert_eq!(vm.attachment.forwards(), [Forward { guest_port: 8080, host_port }, other]);
    let listener = guest.listen(8080);
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, host_port)).await.unwrap();
    client.write_all(b"question").await.unwrap();
    listener.opened().await.unwrap();
    assert_eq!(listener.read_exact(8).await.unwrap(), b"question");
    // Forwards have nothing to do with what the guest may reach.
    vm.guard.set_policy(NetworkPolicy { allow_internet: true, ..NetworkPolicy::default() });
    listener.write_all(b"answer").await.unwrap();
    listener.end_writing();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
    drop(client);
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert_eq!((closed.bytes_up, closed.bytes_down), (6, 8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_without_listener_resets_the_client() {
    let world = World::new();
    let vm = world.vm(2, NetworkPolicy::default());
    let _guest = vm.guest().await;
    let Forward { host_port, .. } = vm.attachment.add_forward(8080, None, &BTreeSet::new()).unwrap();
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, host_port)).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert_eq!(closed.message.as_deref(), Some("nothing listens on port 8080 in the guest"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_forwards_are_specific_errors() {
    let world = World::new();
    let (one, two) = (world.vm(2, NetworkPolicy::default()), world.vm(3, NetworkPolicy::default()));
    let Forward { host_port, .. } = one.attachment.add_forward(80, None, &BTreeSet::new()).unwrap();
    let add = |guest_port, host_port| two.attachment.add_forward(guest_port, host_port, &BTreeSet::new());
    assert!(matches!(add(80, Some(host_port)), Err(ForwardError::InUse { port }) if port == host_port));
    let taken = TcpListener::bind("0.0.0.0:0").await.unwrap().into_std().unwrap();
    let port = taken.local_addr().unwrap().port();
    assert!(matches!(add(80, Some(port)), Err(ForwardError::InUse { .. })));
    assert!(matches!(add(80, Some(1023)), Err(ForwardError::Privileged { port: 1023 })));
    assert!(matches!(add(0, None), Err(ForwardError::NoPort)));
    assert!(matches!(
        one.attachment.add_forward(80, None, &BTreeSet::new()),
        Err(ForwardError::Exists { guest_port: 80, .. })
    ));
    assert!(matches!(two.attachment.remove_forward(80), Err(ForwardError::Unknown { guest_port: 80 })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_a_forward_ends_its_connections() {
    let world = World::new();
    let vm = world.vm(2, NetworkPolicy::default());
    let guest = vm.guest().await;
    let Forward { host_port, .. } = vm.attachment.add_forward(8080, None, &BTreeSet::new()).unwrap();
    let listener = guest.listen(8080);
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, host_port)).await.unwrap();
    listener.opened().await.unwrap();
    vm.attachment.remove_forward(8080).unwrap().ended().await;
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    eventually(|| (vm.attachment.open_flows() == 0).then_some(())).await;
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, host_port)).await.is_err());
    assert!(vm.attachment.add_forward(8080, Some(host_port), &BTreeSet::new()).is_ok());
}
