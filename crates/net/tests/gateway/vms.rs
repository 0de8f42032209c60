//! Connections from one VM to another.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddrV4;

use agentiso_core::network::NetworkPolicy;
use agentiso_net::flow::log::FlowEvent;

use crate::frames::{ipv4_frame, udp};
use crate::guest::{Guest, Stream};
use crate::world::{GATEWAY, TestVm, World, eventually};

fn open_to_others(allowed_ports: Vec<u16>) -> NetworkPolicy {
    NetworkPolicy { allow_inter_vm: true, allowed_ports, ..NetworkPolicy::default() }
}

fn at(vm: &TestVm, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(vm.identity.address, port)
}

/// Sends a question from one guest to a listener in another, and returns the answer.
async fn talk(from: &Guest, to: SocketAddrV4, listener: &Stream) -> (Stream, Vec<u8>) {
    let stream = from.open(to).await.unwrap();
    stream.write_all(b"question").await.unwrap();
    listener.opened().await.unwrap();
    assert_eq!(listener.read_exact(8).await.unwrap(), b"question");
    listener.write_all(b"answer").await.unwrap();
    let answer = stream.read_exact(6).await.unwrap();
    (stream, answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vms_talk_while_both_allow_it() {
    let world = World::new();
    let (one, two) = (world.vm(2, open_to_others(vec![])), world.vm(3, open_to_others(vec![])));
    let (first, second) = (one.guest().await, two.guest().await);
    let listener = second.listen(80);
    let (stream, answer) = talk(&first, at(&two, 80), &listener).await;
    assert_eq!(answer, b"answer");
    assert_eq!(one.recorded(FlowEvent::Opened).await.name.as_deref(), Some("vm3"));
    two.guard.set_policy(NetworkPolicy::default());
    // Both are reset without sending anything.
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(listener.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let closed = one.recorded(FlowEvent::Closed).await;
    assert_eq!((closed.bytes_up, closed.bytes_down), (8, 6));
    assert!(closed.message.unwrap().contains("the other VM has no allow_inter_vm"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vm_connections_last_while_allowed_and_attached() {
    let world = World::new();
    let (one, two) = (world.vm(2, open_to_others(vec![])), world.vm(3, open_to_others(vec![])));
    let (first, second) = (one.guest().await, two.guest().await);
    let listener = second.listen(80);
    let (stream, _) = talk(&first, at(&two, 80), &listener).await;
    two.guard.set_policy(open_to_others(vec![80]));
    one.guard.set_policy(open_to_others(vec![9]));
    stream.write_all(b"question").await.unwrap();
    assert_eq!(listener.read_exact(8).await.unwrap(), b"question");
    two.guard.set_policy(open_to_others(vec![81]));
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(one.recorded(FlowEvent::Closed).await.message.unwrap().contains("port 80"));

    two.guard.set_policy(open_to_others(vec![]));
    let again = second.listen(80);
    talk(&first, at(&two, 80), &again).await;
    two.attachment.detach().await;
    let ended = eventually(|| one.find(FlowEvent::Closed).into_iter().nth(1)).await;
    assert_eq!(ended.message.as_deref(), Some("the other VM is gone"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_unwilling_vm_prevents_a_connection() {
    let world = World::new();
    let (one, two) = (world.vm(2, open_to_others(vec![])), world.vm(3, NetworkPolicy::default()));
    let (first, second) = (one.guest().await, two.guest().await);
    let (_there, _here) = (second.listen(80), first.listen(80));
    assert_eq!(first.open(at(&two, 80)).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(second.open(at(&one, 80)).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    assert!(one.recorded(FlowEvent::Refused).await.message.unwrap().contains("allow_inter_vm"));
    // The same for a VM that does not exist.
    let nobody = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 42, 0, 9), 80);
    assert_eq!(first.open(nobody).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(two.attachment.counters().frames_down, 2, "an ARP answer and a reset of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vms_of_one_group_talk() {
    let world = World::new();
    let (one, two) = (world.vm(2, NetworkPolicy::default()), world.vm(3, NetworkPolicy::default()));
    let (first, second) = (one.guest().await, two.guest().await);
    one.attachment.set_groups(BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    two.attachment.set_groups(BTreeSet::from(["b".to_owned()]));
    let listener = second.listen(80);
    assert_eq!(talk(&first, at(&two, 80), &listener).await.1, b"answer");
    two.attachment.set_groups(BTreeSet::new());
    assert!(first.open(at(&two, 81)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allowed_ports_limit_openings_not_replies() {
    let world = World::new();
    let (one, two) = (world.vm(2, open_to_others(vec![9])), world.vm(3, open_to_others(vec![80])));
    let (first, second) = (one.guest().await, two.guest().await);
    let (open, _shut) = (second.listen(80), second.listen(81));
    assert_eq!(talk(&first, at(&two, 80), &open).await.1, b"answer");
    assert_eq!(first.open(at(&two, 81)).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    assert!(one.recorded(FlowEvent::Refused).await.message.unwrap().contains("port 81"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vm_resolves_only_reachable_vms() {
    let world = World::new();
    let (one, _two) = (world.vm(2, open_to_others(vec![])), world.vm(3, open_to_others(vec![])));
    let _three = world.vm(4, NetworkPolicy::default());
    let first = one.guest().await;
    for (port, name) in [(4001, "vm3"), (4002, "vm4")] {
        let body = udp(port, 53, name.as_bytes());
        first.send_frame(&ipv4_frame(one.identity.mac, one.identity.address, GATEWAY, 17, &body, 0));
    }
    let answers = eventually(|| Some(first.others()).filter(|answers| answers.len() == 2)).await;
    let mut answers: Vec<_> = answers.iter().map(|packet| &packet[28..]).collect();
    answers.sort_unstable();
    assert_eq!(answers, [&b"10.42.0.3"[..], b"vm4"]);
}
