//! Connections to the outside.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use agentiso_net::flow::Limits;
use agentiso_net::flow::log::FlowEvent;
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{
    Check, World, echo_server, eventually, internet, pattern, public, server, sink_server, source_server,
};

const MB: usize = 1 << 20;

/// Bytes of a bulk transfer; fewer without optimisation, where the code is slow.
const BULK: usize = if cfg!(debug_assertions) { 24 * MB } else { 512 * MB };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn echo_server_returns_what_the_guest_sends() {
    let world = World::new();
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let stream = guest.open(public(7)).await.unwrap();
    for text in ["one", "two", "three"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        assert_eq!(stream.read_exact(text.len()).await.unwrap(), text.as_bytes());
    }
    stream.end_writing();
    assert!(stream.read_to_end().await.unwrap().is_empty());
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert_eq!((closed.bytes_up, closed.bytes_down, closed.message), (11, 11, None));
    assert_eq!(vm.find(FlowEvent::Opened).len(), 1);
    eventually(|| (vm.attachment.open_flows() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_closing_sends_one_packet() {
    let world = World::new();
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let sent = || vm.attachment.counters().frames_down;
    // On a busy host the server may take longer, which makes it two packets.
    for _ in 0..50 {
        let stream = guest.open(public(7)).await.unwrap();
        let before = settled(sent).await;
        stream.end_writing();
        assert!(stream.read_to_end().await.unwrap().is_empty());
        eventually(|| (sent() > before).then_some(())).await;
        if settled(sent).await == before + 1 {
            return;
        }
    }
    panic!("the server's end was never one packet");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_ends_reach_the_guest_together() {
    let world = World::new();
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    // On a busy host not all of them may be ready in time.
    for _ in 0..50 {
        let streams = join_all((0..8).map(|_| guest.open(public(7)))).await;
        let sent = || vm.attachment.counters().frames_down;
        settled(sent).await;
        let before = vm.attachment.counters();
        streams.iter().for_each(|stream| stream.as_ref().unwrap().end_writing());
        for stream in streams {
            assert!(stream.unwrap().read_to_end().await.unwrap().is_empty());
        }
        settled(sent).await;
        let after = vm.attachment.counters();
        if (after.frames_down - before.frames_down, after.calls_down - before.calls_down) == (8, 1) {
            return;
        }
    }
    panic!("the guest was never called upon once for all of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_an_answer_is_not_delayed() {
    let world = World::new();
    let answering = server(|mut stream: TcpStream| async move {
        stream.read_to_end(&mut Vec::new()).await.unwrap();
        stream.write_all(b"answer").await.unwrap();
    });
    world.route(public(80), answering.await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    // A busy host may be slow in some rounds, but not in all.
    for _ in 0..50 {
        let stream = guest.open(public(80)).await.unwrap();
        let begun = Instant::now();
        stream.end_writing();
        assert_eq!(stream.read_to_end().await.unwrap(), b"answer");
        if begun.elapsed() < Duration::from_millis(9) {
            return;
        }
    }
    panic!("the end of an answer always took as long as frames are gathered");
}

/// Number of unchanged reads after which a count is settled.
const LOOKS: u32 = 5;

/// The count when it no longer grows. A frame is counted after it was written, and so perhaps after the guest has read
/// it.
async fn settled(count: impl Fn() -> u64) -> u64 {
    let (mut last, mut same) = (count(), 0);
    let is_settled = || {
        let now = count();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        (same == LOOKS).then_some(now)
    };
    eventually(is_settled).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn download_arrives_whole() {
    let world = World::new();
    world.route(public(80), source_server(BULK).await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let stream = guest.open(public(80)).await.unwrap();
    let (mut check, mut space) = (Check::new(), vec![0; MB]);
    while let count @ 1.. = stream.read(&mut space).await.unwrap() {
        check.add(&space[..count]);
    }
    assert_eq!(check.length, BULK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_arrives_whole() {
    let world = World::new();
    world.route(public(80), sink_server().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let stream = guest.open(public(80)).await.unwrap();
    let block = pattern();
    let mut sent = 0;
    while sent < BULK {
        let piece = &block[..block.len().min(BULK - sent)];
        stream.write_all(piece).await.unwrap();
        sent += piece.len();
    }
    stream.end_writing();
    assert_eq!(stream.read_to_end().await.unwrap(), BULK.to_string().as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_server_still_hears_the_guest() {
    let world = World::new();
    let address = server(async |mut stream: TcpStream| {
        stream.write_all(b"all I have").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "and this is mine");
    })
    .await;
    world.route(public(80), address);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let stream = guest.open(public(80)).await.unwrap();
    assert_eq!(stream.read_to_end().await.unwrap(), b"all I have");
    stream.write_all(b"and this is mine").await.unwrap();
    stream.end_writing();
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert_eq!((closed.bytes_up, closed.bytes_down, closed.message), (16, 10, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_pass_in_both_directions() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.route(public(80), listener.local_addr().unwrap());
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let (stream, accepted) = tokio::join!(guest.open(public(80)), listener.accept());
    let (stream, (server, _)) = (stream.unwrap(), accepted.unwrap());
    server.set_zero_linger().unwrap();
    drop(server);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);

    let (stream, accepted) = tokio::join!(guest.open(public(80)), listener.accept());
    let (stream, (mut server, _)) = (stream.unwrap(), accepted.unwrap());
    stream.write_all(b"x").await.unwrap();
    server.read_u8().await.unwrap();
    stream.reset();
    assert_eq!(server.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let ends: Vec<_> = eventually(|| {
        let ends = vm.find(FlowEvent::Closed);
        (ends.len() == 2).then_some(ends)
    })
    .await;
    let said: Vec<_> = ends.iter().map(|record| record.message.as_deref().unwrap_or_default()).collect();
    assert_eq!(said, ["reset by the other side", "reset by the guest"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_refusal_reaches_the_guest() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.route(public(80), listener.local_addr().unwrap());
    drop(listener);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    assert_eq!(guest.open(public(80)).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert_eq!(closed.message.as_deref(), Some("the server refused the connection"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_server_is_reported_unreachable() {
    let world = World::with(|settings| settings.connect_deadline = Duration::from_millis(100));
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let _stream = guest.begin(public(80), 4096);
    // Host unreachable, about the guest's own packet.
    let message = eventually(|| guest.others().into_iter().next()).await;
    assert_eq!((message[9], message[20], message[21]), (1, 3, 1));
    let closed = vm.recorded(FlowEvent::Closed).await;
    assert_eq!(closed.message.as_deref(), Some("the server did not answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_connections_at_once_all_work() {
    let world = World::with(|settings| settings.limits.connecting = 512);
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let streams: Vec<_> = (0..500).map(|_| guest.begin(public(7), 2048)).collect();
    join_all(streams.iter().enumerate().map(async |(number, stream)| {
        stream.opened().await.unwrap();
        let text = format!("connection {number}");
        stream.write_all(text.as_bytes()).await.unwrap();
        assert_eq!(stream.read_exact(text.len()).await.unwrap(), text.as_bytes());
    }))
    .await;
    assert_eq!(vm.attachment.open_flows(), 500);
    streams.iter().for_each(|stream| stream.end_writing());
    eventually(|| (vm.attachment.open_flows() == 0).then_some(())).await;
}

/// Resident memory of this process, in MiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096) >> 20
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_have_a_bounded_memory_and_return_it() {
    const CONNECTIONS: usize = 400;
    let world = World::with(|settings| settings.limits.connecting = 512);
    let endless =
        server(async |mut stream: TcpStream| while stream.write_all(&[7; 10_000]).await.is_ok() {}).await;
    world.route(public(80), endless);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let before = resident();
    // They read nothing, so the servers' bytes fill the gateway.
    let streams: Vec<_> = (0..CONNECTIONS).map(|_| guest.begin(public(80), 2048)).collect();
    join_all(streams.iter().map(async |stream| stream.opened().await.unwrap())).await;
    let (used, most) = vm.attachment.buffered();
    assert!(used <= most && most <= 40 << 20, "{used} of {most}");
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
    vm.attachment.vacate().await;
    assert_eq!(vm.attachment.open_flows(), 0);
    assert!(vm.attachment.buffered().0 <= 2 << 20, "no more than what waits for the next connection");
    let left = resident().saturating_sub(before);
    assert!(left < 24, "{left} MiB are left of {grown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_are_refused() {
    let world = World::with(|settings| settings.limits = Limits { flows: 3, ..Limits::DEFAULT });
    world.route(public(7), echo_server().await);
    let vm = world.vm(2, internet());
    let guest = vm.guest().await;
    let open = join_all((0..3).map(|_| guest.open(public(7)))).await;
    assert!(open.iter().all(Result::is_ok));
    assert_eq!(guest.open(public(7)).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    let message = vm.recorded(FlowEvent::Refused).await.message.unwrap();
    assert!(message.contains("3 connections"), "{message}");
    for stream in open.iter().flatten() {
        stream.end_writing();
    }
    eventually(|| (vm.attachment.open_flows() == 0).then_some(())).await;
    assert!(guest.open(public(7)).await.is_ok());
}
