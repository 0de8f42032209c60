//! Tests of connections that end anywhere, on a stream that continues.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentiso_agent::{AgentClient, AgentError};
use agentiso_guest::server::serve;
use agentiso_guest::system::NoSystem;
use agentiso_protocol::link::data_header;
use agentiso_vm::{Command, ExecEvent, ExecSpec, JobQuery};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{SOON, eventually, runs};

/// Copies in pieces of an odd size, so that the stream is cut in the middle of a frame.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut piece = vec![0; 4999];
    while let Ok(count) = from.read(&mut piece).await
        && count > 0
        && to.write_all(&piece[..count]).await.is_ok()
    {}
}

/// One stream to the agent behind a socket that serves one client after the other, as QEMU does.
async fn switchboard(listener: UnixListener, mut agent: UnixStream) {
    while let Ok((mut client, _)) = listener.accept().await {
        let (from_client, to_client) = client.split();
        let (from_agent, to_agent) = agent.split();
        // Each direction runs by itself; when one ends, the other is cut off.
        tokio::select! {
            () = copy(from_client, to_agent) => {}
            () = copy(from_agent, to_client) => {}
        }
    }
}

fn start(path: &Path) -> [AbortOnDropHandle<()>; 2] {
    let (near, far) = UnixStream::pair().expect("a pair of sockets");
    let listener = UnixListener::bind(path).expect("a socket");
    [
        AbortOnDropHandle::new(tokio::spawn(switchboard(listener, near))),
        AbortOnDropHandle::new(tokio::spawn(async move {
            drop(serve(far, Arc::new(NoSystem)).await);
        })),
    ]
}

#[tokio::test]
async fn reconnect_works_after_a_cut_anywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("agent.sock");
    let large = dir.path().join("large");
    std::fs::File::create(&large).and_then(|file| file.set_len(1 << 30)).expect("a large file");
    let _tasks = start(&path);
    for round in 0..30_u64 {
        let client = AgentClient::connect(&path, Instant::now() + SOON).await.expect("connected");
        client.ping(vec![7; 3000].into()).await.expect("it works");
        let mut reader = client.read_file(large.to_str().expect("text"), 0, None).await.expect("opened");
        for _ in 0..round % 5 {
            reader.next().await.expect("read");
        }
        // Both directions are busy when the connection ends.
        let target = dir.path().join("upload");
        let upload = client.write_file(
            target.to_str().expect("text"),
            agentiso_agent::WriteOptions::default(),
            tokio::io::repeat(1),
        );
        drop(tokio::time::timeout(Duration::from_millis(round % 7), upload).await);
    }
    // The stream to the agent never ends: the next connection cleans up after the last one.
    let _last = AgentClient::connect(&path, Instant::now() + SOON).await.expect("connected");
    eventually("no upload is left", || std::fs::read_dir(dir.path()).expect("listed").count() == 2).await;
}

#[tokio::test]
async fn new_connection_ends_earlier_commands() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("agent.sock");
    let _tasks = start(&path);
    let first = AgentClient::connect(&path, Instant::now() + SOON).await.expect("connected");
    let mut spec = ExecSpec::shell("sleep 1000").within(SOON);
    spec.stream = true;
    let mut running = first.exec(spec).await.expect("sent");
    let Some(Ok(ExecEvent::Started { pid })) = running.next().await else { panic!("it is not started") };
    drop((running, first));
    let second = AgentClient::connect(&path, Instant::now() + SOON).await.expect("connected");
    second.ping(vec![1].into()).await.expect("it works");
    eventually("the command is killed", || !runs(&pid.to_string())).await;
}

#[tokio::test]
async fn jobs_and_environment_outlive_their_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("agent.sock");
    let _tasks = start(&path);
    let first = AgentClient::connect(&path, Instant::now() + SOON).await.expect("connected");
    first.set_env([("GREETING".to_owned(), "hello".to_owned())].into()).await.expect("set");
    let command = "echo $$; sleep 1000".to_owned();
    let id =
        first.start_job(Command { command, workdir: None, env: Default::default() }).await.expect("started");
    drop(first);
    let second = AgentClient::connect(&path, Instant::now() + SOON).await.expect("connected");
    let query = JobQuery { id, head_bytes: 100, ..JobQuery::default() };
    let mut state = second.poll_job(query).await.expect("polled");
    while state.stdout.head.is_empty() {
        state = second.poll_job(query).await.expect("polled");
    }
    let pid = String::from_utf8(state.stdout.head.to_vec()).expect("text");
    assert!(state.running && runs(pid.trim()));
    let outcome =
        second.exec(ExecSpec::shell("echo $GREETING").within(SOON)).await.expect("sent").outcome().await;
    assert_eq!(&outcome.expect("it ends").stdout.head[..], b"hello\n");
    assert!(!second.kill_job(id, 9).await.expect("killed"));
    assert!(!runs(pid.trim()));
}

#[tokio::test]
async fn agent_stuck_in_a_frame_resynchronizes() {
    for stuck in [0, 1, 3, 100, 16 * 1024 - 1] {
        let (mut host, guest) = UnixStream::pair().expect("a pair of sockets");
        let _server = AbortOnDropHandle::new(tokio::spawn(async move {
            drop(serve(guest, Arc::new(NoSystem)).await);
        }));
        let mut bytes = data_header(16 * 1024).to_vec();
        bytes.resize(4 + stuck, 0xee);
        host.write_all(&bytes).await.expect("sent");
        let client = AgentClient::over(host, Instant::now() + SOON).await.expect("connected");
        client.ping(vec![1].into()).await.expect("it works");
    }
}

#[tokio::test]
async fn connect_waits_for_a_late_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("agent.sock");
    let late = path.clone();
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        start(&late)
    });
    let client = AgentClient::connect(&path, Instant::now() + SOON).await.expect("connected");
    client.ping(vec![1].into()).await.expect("it works");
    drop(later);
}

#[tokio::test]
async fn connect_gives_up_at_its_deadline() {
    let dir = tempfile::tempdir().expect("a directory");
    let deadline = Instant::now() + Duration::from_millis(300);
    let error = AgentClient::connect(dir.path().join("none"), deadline).await.expect_err("given up");
    assert!(
        matches!(&error, AgentError::NotReady { reason, .. } if reason.contains("does not exist")),
        "{error:?}"
    );
}

#[tokio::test]
async fn lost_link_fails_running_calls() {
    let (host, guest) = UnixStream::pair().expect("a pair of sockets");
    let server = tokio::spawn(async move {
        drop(serve(guest, Arc::new(NoSystem)).await);
    });
    let client = AgentClient::over(host, Instant::now() + SOON).await.expect("connected");
    let running = client.exec(ExecSpec::shell("sleep 1000").within(SOON)).await.expect("sent");
    assert!(!client.is_closed());
    server.abort();
    assert!(client.closed_within(SOON).await);
    let error = running.outcome().await.expect_err("it is lost");
    assert!(matches!(error, AgentError::Disconnected { .. }), "{error:?}");
    let error = client.ping(vec![1].into()).await.expect_err("nobody answers");
    assert!(matches!(error, AgentError::Disconnected { .. }), "{error:?}");
}

#[tokio::test]
async fn restarted_agent_closes_the_old_connection() {
    let (near, far) = UnixStream::pair().expect("a pair of sockets");
    // A second descriptor of the same end represents the port, which stays when the agent ends.
    let far = far.into_std().expect("a socket");
    let kept = far.try_clone().expect("a second descriptor");
    let agent = |stream: std::os::unix::net::UnixStream| {
        tokio::spawn(async move {
            let stream = UnixStream::from_std(stream).expect("a socket");
            drop(serve(stream, Arc::new(NoSystem)).await);
        })
    };
    let first = agent(far);
    let client = AgentClient::over(near, Instant::now() + SOON).await.expect("connected");
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    assert!(!client.closed_within(Duration::from_millis(200)).await, "nothing tells yet");
    let _second = AbortOnDropHandle::new(agent(kept));
    assert!(client.closed_within(SOON).await);
}
