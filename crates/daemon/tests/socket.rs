//! Tests for the daemon's socket: greetings, the control protocol, and clients that disconnect or misbehave.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentiso_core::lifecycle::PublicState;
use agentiso_daemon::control::wire::{
    CreateParams, CreateResult, Event, ExecParams, ExecResult, ForkManyParams, ForkManyResult, ForkParams,
    ForkResult, Op, RestoreResult, Snapshot, SnapshotResult, StatusResult, Stream, WireError, Workspace,
};
use agentiso_daemon::control::{ConnectError, ControlClient, ControlError, Hello, Kind, Listener, connect};
use agentiso_daemon::{
    Daemon, FoundDaemon, InstanceLock, LogKind, Logs, McpHandler, McpOptions, Rung, Session, SessionKind,
    SnapshotDiff,
};
use futures::future::BoxFuture;
use support::{FakeHost, by_name, config, eventually, named, open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// An MCP handler that answers every line with the session's id and the line.
struct EchoHandler;

impl McpHandler for EchoHandler {
    fn serve(&self, session: Session, options: McpOptions, mut stream: UnixStream) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut heard = [0; 256];
            while let Ok(count @ 1..) = stream.read(&mut heard).await {
                let said = format!("{} {:?} ", session.id(), options.tools);
                let _ = stream.write_all(said.as_bytes()).await;
                let _ = stream.write_all(&heard[..count]).await;
            }
        })
    }
}

async fn serve(root: &Path, host: &Arc<FakeHost>) -> (Daemon, tokio::task::JoinHandle<()>) {
    let daemon = open(root, host).await;
    let listener = Listener::bind(&daemon.config().paths.daemon_socket()).unwrap();
    let serving = tokio::spawn(
        daemon.clone().serve(listener, EchoHandler, |error| Some(format!("about {}", error.code()))),
    );
    (daemon, serving)
}

async fn control(root: &Path) -> ControlClient {
    ControlClient::new(connect(&config(root, "").paths, &Hello::control()).await.unwrap())
}

/// The daemon's refusal of a request.
async fn refusal(client: &mut ControlClient, op: Op) -> WireError {
    let answer = client.ask::<serde_json::Value>(op).await;
    let Err(ControlError::Daemon(error)) = answer else { panic!("not refused: {answer:?}") };
    error
}

async fn raw(root: &Path) -> UnixStream {
    UnixStream::connect(config(root, "").paths.daemon_socket()).await.unwrap()
}

async fn read_line(stream: &mut UnixStream) -> String {
    let mut line = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        if byte == b'\n' {
            break;
        }
        line.push(byte);
    }
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn control_client_creates_uses_and_removes_a_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    let mut client = control(dir.path()).await;
    let () = client.ask(Op::Ping).await.unwrap();
    assert_eq!(client.welcome().pid, std::process::id());
    let params =
        CreateParams { name: Some("web".to_owned()), memory_mb: Some(128), ..CreateParams::default() };
    let created: CreateResult = client.ask(Op::Create(params)).await.unwrap();
    assert_eq!(created.workspace.state, PublicState::Running);

    let mut seen = Vec::new();
    let exec = ExecParams {
        workspace: "web".to_owned(),
        command: "hi".to_owned(),
        stream: true,
        ..ExecParams::default()
    };
    let see = |event| match event {
        Event::Output { stream: Stream::Stdout, data } => seen.extend(data.0),
        Event::Output { .. }
        | Event::Started { .. }
        | Event::Progress { .. }
        | Event::TaskDone(_)
        | Event::Flow(_)
        | Event::FlowsLost { .. } => {}
    };
    let result: ExecResult = client.call(Op::Exec(exec), see).await.unwrap();
    assert_eq!((result.exit_code, seen.as_slice()), (Some(0), &b"hi"[..]));
    let web = || "web".to_owned();
    let logs = Op::Logs { workspace: web(), kind: LogKind::Console, max_lines: 5 };
    assert_eq!(client.ask::<Logs>(logs).await.unwrap().console.as_deref(), Some("booted"));
    let stopped: Workspace = client.ask(Op::Stop { workspace: web() }).await.unwrap();
    assert_eq!(stopped.state, PublicState::Stopped);
    let started: Workspace = client.ask(Op::Start { workspace: web() }).await.unwrap();
    assert_eq!(started.state, PublicState::Running);
    assert_eq!(client.ask::<StatusResult>(Op::Status).await.unwrap().running, 1);
    let users = Op::ImageRmCheck { image: "debian-dev".to_owned() };
    assert_eq!(client.ask::<Vec<Workspace>>(users).await.unwrap().len(), 1);
    let remove = Op::Rm { workspace: web() };
    let _: Workspace = client.ask(remove.clone()).await.unwrap();
    let error = refusal(&mut client, remove).await;
    assert_eq!(
        (error.code.as_str(), error.hint.as_deref()),
        ("workspace_not_found", Some("about workspace_not_found"))
    );
    daemon.shutdown().await;
}

#[tokio::test]
async fn control_client_takes_restores_forks_and_deletes_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    let mut client = control(dir.path()).await;
    let params =
        CreateParams { name: Some("web".to_owned()), memory_mb: Some(128), ..CreateParams::default() };
    let _: CreateResult = client.ask(Op::Create(params)).await.unwrap();
    let names = || ("web".to_owned(), "a".to_owned());
    let (workspace, snapshot) = names();
    let take = Op::Snapshot { workspace, snapshot, include_memory: true };
    let made: SnapshotResult = client.ask(take).await.unwrap();
    assert_eq!((made.snapshot.name.as_str(), made.pause_us), ("a", 7000));
    assert!(made.snapshot.has_memory && made.snapshot.current);
    let list = || Op::Snapshots { workspace: "web".to_owned() };
    assert!(client.ask::<Vec<Snapshot>>(list()).await.unwrap()[0].used_bytes.is_some());
    let (workspace, snapshot) = names();
    let difference: SnapshotDiff = client.ask(Op::DiffSnapshot { workspace, snapshot }).await.unwrap();
    assert_eq!(difference.changed_bytes, 0);
    let (workspace, snapshot) = names();
    let restored: RestoreResult = client.ask(Op::Restore { workspace, snapshot }).await.unwrap();
    assert_eq!((restored.rung, restored.workspace.state), (Rung::Memory, PublicState::Running));

    let (workspace, snapshot) = names();
    let one = ForkParams { name: Some("idea".to_owned()), ..fork_params(&workspace, &snapshot) };
    let forked: ForkResult = client.ask(Op::Fork(one)).await.unwrap();
    assert_eq!(forked.workspace.forked_from.unwrap().source_workspace_name.as_str(), "web");
    let many =
        ForkManyParams { workspace, snapshot, count: 2, name_prefix: "w".to_owned(), ..Default::default() };
    let batch: ForkManyResult = client.ask(Op::ForkMany(many)).await.unwrap();
    assert_eq!((batch.workers.len(), batch.failures.len()), (2, 0));
    assert_eq!(client.ask::<Vec<Snapshot>>(list()).await.unwrap()[0].forks, ["idea", "w-1", "w-2"]);
    let all: Vec<Workspace> = client.ask(Op::Ps { state: None }).await.unwrap();
    let web = all.into_iter().find(|workspace| workspace.name == "web").unwrap();
    assert_eq!(web.snapshots.len(), 1);

    let (workspace, snapshot) = names();
    let delete = Op::DeleteSnapshot { workspace, snapshot };
    let error = refusal(&mut client, delete.clone()).await;
    assert_eq!(error.code, "snapshot_in_use");
    assert!(error.message.contains("idea, w-1, w-2"), "{error}");
    for name in ["idea", "w-1", "w-2"] {
        let _: Workspace = client.ask(Op::Rm { workspace: name.to_owned() }).await.unwrap();
    }
    assert_eq!(client.ask::<Snapshot>(delete).await.unwrap().name, "a");
    let (workspace, snapshot) = ("web".to_owned(), "a b".to_owned());
    let error = refusal(&mut client, Op::Snapshot { workspace, snapshot, include_memory: false }).await;
    assert_eq!(error.code, "invalid_argument");
    daemon.shutdown().await;
}

fn fork_params(workspace: &str, snapshot: &str) -> ForkParams {
    ForkParams { workspace: workspace.to_owned(), snapshot: snapshot.to_owned(), ..ForkParams::default() }
}

#[tokio::test]
async fn disconnected_client_cancels_its_calls() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    let shell = daemon.open_session(SessionKind::Shell);
    shell.create(named("web"), &agentiso_daemon::Progress::silent()).await.unwrap();

    let mut client = control(dir.path()).await;
    let sleep =
        ExecParams { workspace: "web".to_owned(), command: "sleep".to_owned(), ..ExecParams::default() };
    let gave_up =
        tokio::time::timeout(Duration::from_millis(50), client.ask::<ExecResult>(Op::Exec(sleep))).await;
    assert!(gave_up.is_err());
    drop(client);
    eventually("the end of the command", || host.killed_commands.load(Ordering::SeqCst) == 1).await;

    host.inject(support::Fault::BootHangsAfterSpawn);
    let mut client = control(dir.path()).await;
    let params = CreateParams { name: Some("half".to_owned()), ..CreateParams::default() };
    let creating =
        tokio::spawn(async move { client.ask::<CreateResult>(Op::Create(params)).await.map(drop) });
    host.hanging.notified().await;
    creating.abort();
    eventually("the rollback", || shell.list(None).len() == 1 && host.processes().len() == 1).await;
    assert!(shell.guest(&by_name("web")).await.is_ok());
    daemon.shutdown().await;
}

#[tokio::test]
async fn mcp_handler_gets_every_byte_sent() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    let mut stream = raw(dir.path()).await;
    // The first message arrives in the same write as the hello.
    let hello = b"{\"agentiso\":1,\"kind\":\"mcp\",\"version\":\"t\",\"tools\":\"core\",\"read_only\":false}\n{\"x\":1}\n";
    stream.write_all(hello).await.unwrap();
    assert!(read_line(&mut stream).await.contains("\"ok\":true"));
    let answer = read_line(&mut stream).await;
    assert!(answer.starts_with("session-") && answer.ends_with("Some(\"core\") {\"x\":1}"), "{answer}");
    daemon.shutdown().await;
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0, "the conversation ends with the daemon");
}

#[tokio::test]
async fn malformed_requests_do_not_disturb_other_clients() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    for bad in ["nonsense\n", "{\"agentiso\":7}\n", "\0\0\0\n"] {
        let mut stream = raw(dir.path()).await;
        stream.write_all(bad.as_bytes()).await.unwrap();
        let answer = read_line(&mut stream).await;
        assert!(answer.contains("\"ok\":false"), "{bad:?} gave {answer}");
    }
    let mut stream = raw(dir.path()).await;
    stream.write_all(b"{\"agentiso\":1,\"kind\":\"control\",\"version\":\"t\"}\n").await.unwrap();
    read_line(&mut stream).await;
    for bad in ["garbage", "{}", "{\"id\":1,\"op\":\"explode\"}", "{\"id\":1,\"op\":\"rm\",\"workspace\":5}"]
    {
        stream.write_all(format!("{bad}\n").as_bytes()).await.unwrap();
        let answer = read_line(&mut stream).await;
        assert!(answer.contains("invalid_argument"), "{bad} gave {answer}");
    }
    stream.write_all(&[0xff, 0xfe, b'\n']).await.unwrap();
    assert!(read_line(&mut stream).await.contains("error"));
    // An endless line is cut off at its limit.
    let endless = vec![b'x'; 1 << 20];
    let flood = async { while stream.write_all(&endless).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(20), flood).await.expect("the daemon hangs up");
    let () = control(dir.path()).await.ask(Op::Ping).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn socket_shutdown_waits_for_all_vms() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, serving) = serve(dir.path(), &host).await;
    let shell = daemon.open_session(SessionKind::Shell);
    shell.create(named("web"), &agentiso_daemon::Progress::silent()).await.unwrap();
    *host.shutdown_takes.lock().unwrap() = Duration::from_millis(200);
    let client = control(dir.path()).await;
    let ending = tokio::spawn(client.shutdown());
    serving.await.unwrap();
    assert!(!ending.is_finished(), "the VM is still going down");
    daemon.shutdown().await;
    ending.await.unwrap().unwrap();
    assert!(host.processes().is_empty());
    let error = connect(&config(dir.path(), "").paths, &Hello::control()).await.unwrap_err();
    assert!(matches!(error, ConnectError::NotRunning { .. }), "{error}");
}

#[tokio::test]
async fn socket_shutdown_is_answered_before_disconnect() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let host = FakeHost::new(dir.path());
        let (daemon, serving) = serve(dir.path(), &host).await;
        let ending = tokio::spawn(control(dir.path()).await.shutdown());
        serving.await.unwrap();
        daemon.shutdown().await;
        ending.await.unwrap().expect("an answer");
    }
}

#[tokio::test]
async fn daemon_socket_is_private_and_replaces_stale_ones() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let path = config(dir.path(), "").paths.daemon_socket();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let () = control(dir.path()).await.ask(Op::Ping).await.unwrap();
    daemon.shutdown().await;
    assert_eq!(Hello::mcp(McpOptions::default()).kind, Kind::Mcp);
}

#[tokio::test]
async fn daemon_of_another_state_file_is_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = FakeHost::new(dir.path());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    let run = daemon.config().paths.run.clone();
    let mistaken = config(other.path(), &format!("[vm]\nrun_dir = {run:?}\n")).paths;
    let error = connect(&mistaken, &Hello::control()).await.unwrap_err();
    assert!(matches!(error, ConnectError::OtherState { .. }), "{error}");
    let text = error.to_string();
    for named in [&daemon.config().paths.state_file, &mistaken.state_file] {
        let directory = named.parent().unwrap().canonicalize().unwrap();
        assert!(text.contains(directory.to_str().unwrap()), "{text}");
    }
    let link = other.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    let linked = config(&link, &format!("[vm]\nrun_dir = {run:?}\n")).paths;
    connect(&linked, &Hello::control()).await.expect("the same state by another path");
    daemon.shutdown().await;
}

#[tokio::test]
async fn renamed_state_file_is_named_as_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, _serving) = serve(dir.path(), &host).await;
    let mut renamed = daemon.config().paths.clone();
    renamed.state_file = dir.path().join("ledger.json");
    let error = connect(&renamed, &Hello::control()).await.unwrap_err().to_string();
    assert!(error.contains("state_file was changed") && !error.contains("run_dir"), "{error}");
    // The locks, read without asking the daemon, say the same.
    let found = agentiso_daemon::find_daemon(&renamed);
    assert!(matches!(found, Some(FoundDaemon::Other { in_our_directory: true, .. })), "{found:?}");
    daemon.shutdown().await;
}

#[tokio::test]
async fn older_daemon_is_identified_by_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let paths = config(dir.path(), "").paths;
    std::fs::create_dir_all(&paths.run).unwrap();
    let listener = tokio::net::UnixListener::bind(paths.daemon_socket()).unwrap();
    // This daemon is older than the state file in the greeting.
    let answer = format!("{{\"agentiso\":1,\"ok\":true,\"version\":\"0\",\"pid\":{}}}\n", std::process::id());
    let serving = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(answer.as_bytes()).await.unwrap();
            open.push(stream);
        }
    });
    let error = connect(&paths, &Hello::control()).await.unwrap_err();
    assert!(matches!(error, ConnectError::OtherState { theirs: None, .. }), "{error}");
    let _lock = InstanceLock::acquire(&paths.lock_file(), "daemon").unwrap();
    connect(&paths, &Hello::control()).await.expect("it holds the lock beside our state file");
    serving.abort();
}
