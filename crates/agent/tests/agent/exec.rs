//! Tests of commands.

use std::time::{Duration, Instant};

use agentiso_agent::{AgentError, ErrorCode, limits};
use agentiso_core::paths::GuestPath;
use agentiso_vm::{ExecEvent, ExecSpec, OutputStream};

use crate::support::{SOON, TestAgent, eventually, runs};

#[tokio::test]
async fn exec_returns_output_and_exit_code() {
    let agent = TestAgent::start().await;
    let outcome = agent.sh("echo out; echo err >&2; exit 3").await;
    assert_eq!((&outcome.stdout.head[..], &outcome.stderr.head[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!((outcome.exit_code, outcome.signal, outcome.timed_out), (Some(3), None, false));
    assert_eq!(outcome.stdout.total_bytes, 4);
}

#[tokio::test]
async fn signal_is_distinguished_from_exit_code() {
    let outcome = TestAgent::start().await.sh("kill -TERM $$").await;
    assert_eq!((outcome.exit_code, outcome.signal), (None, Some(15)));
}

#[tokio::test]
async fn command_has_empty_input_and_usual_environment() {
    let agent = TestAgent::start().await;
    let mut spec = ExecSpec::shell("cat; pwd; env").within(SOON);
    spec.workdir = Some(GuestPath::parse("/usr").expect("a path"));
    spec.env.insert("GREETING".into(), "hello world".into());
    spec.env.insert("TERM".into(), "vt100".into());
    let outcome = agent.run(spec).await;
    let text = String::from_utf8(outcome.stdout.head.to_vec()).expect("text");
    assert!(text.starts_with("/usr\n"), "{text}");
    for line in ["HOME=/root", "LANG=C.UTF-8", "USER=root", "TERM=vt100", "GREETING=hello world"] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in {text}");
    }
    assert!(text.contains("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"));
}

#[tokio::test]
async fn missing_working_directory_has_its_own_error() {
    let agent = TestAgent::start().await;
    for workdir in ["/does/not/exist", "/etc/passwd"] {
        let mut spec = ExecSpec::shell("true").within(SOON);
        spec.workdir = Some(GuestPath::parse(workdir).expect("a path"));
        let error = agent.client.exec(spec).await.expect("sent").outcome().await.expect_err("refused");
        assert_eq!(error.code(), Some(ErrorCode::BadWorkdir), "{error}");
    }
}

#[tokio::test]
async fn long_output_loses_its_middle() {
    let agent = TestAgent::start().await;
    let mut spec = ExecSpec::shell("seq 1 100000; seq 1 100000 >&2").within(SOON);
    (spec.head_bytes, spec.tail_bytes) = (10, 13);
    let outcome = agent.run(spec).await;
    for captured in [&outcome.stdout, &outcome.stderr] {
        assert_eq!(&captured.head[..], b"1\n2\n3\n4\n5\n");
        assert_eq!(&captured.tail[..], b"99999\n100000\n");
        assert_eq!(captured.total_bytes, 588_895);
    }
}

#[tokio::test]
async fn gigabyte_of_output_is_drained_and_cut() {
    let agent = TestAgent::start().await;
    let started = Instant::now();
    let mut spec = ExecSpec::shell("head -c 1073741824 /dev/zero").within(Duration::from_secs(120));
    spec.head_bytes = limits::MAX_CAPTURE_BYTES;
    let outcome = agent.run(spec).await;
    assert_eq!((outcome.exit_code, outcome.stdout.total_bytes), (Some(0), 1 << 30));
    assert_eq!(outcome.stdout.head.len(), 2 << 20, "as the contract has it");
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[tokio::test]
async fn timeout_keeps_output_and_kills_the_group() {
    let agent = TestAgent::start().await;
    let script = "echo before; sleep 1000 & echo $!; (sleep 1000 & echo $!; wait) & wait";
    let started = Instant::now();
    let outcome = agent.run(ExecSpec::shell(script).within(Duration::from_millis(500))).await;
    assert!(outcome.timed_out && started.elapsed() < Duration::from_secs(10));
    assert_eq!((outcome.exit_code, outcome.signal), (None, Some(9)));
    let text = String::from_utf8(outcome.stdout.head.to_vec()).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("before"));
    let pids: Vec<&str> = lines.collect();
    assert_eq!(pids.len(), 2, "{text}");
    eventually("both are killed", || !pids.iter().any(|pid| runs(pid))).await;
}

#[tokio::test]
async fn endless_output_ends_at_the_timeout() {
    let agent = TestAgent::start().await;
    let outcome = agent.run(ExecSpec::shell("yes & yes >&2").within(Duration::from_millis(300))).await;
    assert!(outcome.timed_out && outcome.stdout.total_bytes > 0 && outcome.stderr.total_bytes > 0);
}

#[tokio::test]
async fn dropping_the_stream_kills_the_group() {
    let agent = TestAgent::start().await;
    for stream in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("pids");
        let mut spec =
            ExecSpec::shell(format!("sleep 1000 & echo $$ $! > {}; wait", file.display())).within(SOON);
        spec.stream = stream;
        let running = agent.client.exec(spec).await.expect("sent");
        let read = || std::fs::read_to_string(&file).unwrap_or_default();
        eventually("it runs", || read().ends_with('\n')).await;
        let text = read();
        let pids: Vec<&str> = text.split_whitespace().collect();
        assert!(pids.iter().all(|pid| runs(pid)), "{pids:?}");
        drop(running);
        eventually("all of it is killed", || !pids.iter().any(|pid| runs(pid))).await;
    }
}

#[tokio::test]
async fn losing_the_connection_kills_the_group() {
    let agent = TestAgent::start().await;
    let mut spec = ExecSpec::shell("echo $$; sleep 1000").within(Duration::from_secs(600));
    spec.stream = true;
    let mut running = agent.client.exec(spec).await.expect("sent");
    let mut pid = None;
    while pid.is_none() {
        if let Some(Ok(ExecEvent::Started { pid: started })) = running.next().await {
            pid = Some(started.to_string());
        }
    }
    let pid = pid.expect("it was started");
    assert!(runs(&pid));
    // The server task stays; only the connection ends.
    let TestAgent { client, server } = agent;
    drop((running, client));
    eventually("it is killed", || !runs(&pid)).await;
    drop(server);
}

#[tokio::test]
async fn background_process_outlives_the_answer() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("survived");
    let script = format!("(sleep 1; yes | head -c 200000; echo $? > {}) & echo done", file.display());
    let started = Instant::now();
    let outcome = agent.sh(&script).await;
    assert_eq!((&outcome.stdout.head[..], outcome.exit_code), (&b"done\n"[..], Some(0)));
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
    eventually("it prints on", || std::fs::read_to_string(&file).is_ok_and(|text| text == "0\n")).await;
}

#[tokio::test]
async fn output_is_streamed_while_the_command_runs() {
    let agent = TestAgent::start().await;
    let mut spec = ExecSpec::shell("echo one; sleep 0.2; echo two >&2; seq 1 50000; exit 4").within(SOON);
    spec.stream = true;
    let mut running = agent.client.exec(spec).await.expect("sent");
    assert!(matches!(running.next().await, Some(Ok(ExecEvent::Started { pid })) if pid > 1));
    let (mut stdout, mut stderr, mut last) = (Vec::new(), Vec::new(), None);
    while let Some(event) = running.next().await {
        assert!(last.is_none(), "nothing follows the end");
        match event.expect("an event") {
            ExecEvent::Started { .. } => panic!("started twice"),
            ExecEvent::Output { stream: OutputStream::Stdout, data } => stdout.extend_from_slice(&data),
            ExecEvent::Output { stream: OutputStream::Stderr, data } => stderr.extend_from_slice(&data),
            ExecEvent::Exited(outcome) => last = Some(outcome),
        }
    }
    let last = last.expect("it ended");
    assert_eq!((last.exit_code, last.stdout.total_bytes), (Some(4), stdout.len() as u64));
    assert!(stdout.starts_with(b"one\n1\n2\n") && stdout.ends_with(b"49999\n50000\n"));
    assert_eq!(stderr, b"two\n");
}

#[tokio::test]
async fn paused_reader_does_not_stop_the_deadline() {
    let agent = TestAgent::start().await;
    let mut spec = ExecSpec::shell("yes").within(Duration::from_millis(700));
    spec.stream = true;
    let mut running = agent.client.exec(spec).await.expect("sent");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut last = None;
    while let Some(event) = running.next().await {
        last = Some(event.expect("an event"));
    }
    assert!(matches!(last, Some(ExecEvent::Exited(outcome)) if outcome.timed_out));
}

#[tokio::test]
async fn only_commands_beyond_the_limit_are_refused() {
    let agent = TestAgent::start().await;
    let mut running = Vec::new();
    for _ in 0..limits::MAX_CONCURRENT_EXECS {
        let mut spec = ExecSpec::shell("sleep 1000").within(SOON);
        spec.stream = true;
        let mut stream = agent.client.exec(spec).await.expect("sent");
        assert!(matches!(stream.next().await, Some(Ok(ExecEvent::Started { .. }))));
        running.push(stream);
    }
    let refused =
        agent.client.exec(ExecSpec::shell("true").within(SOON)).await.expect("sent").outcome().await;
    assert_eq!(refused.expect_err("refused").code(), Some(ErrorCode::Busy));
    agent.client.stat("/", false).await.expect("files are served");
    drop(running);
    // The slots are free again as soon as the cancellations have arrived.
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        match agent.client.exec(ExecSpec::shell("true").within(SOON)).await.expect("sent").outcome().await {
            Ok(_) => break,
            Err(error) => assert_eq!(error.code(), Some(ErrorCode::Busy)),
        }
        assert!(tokio::time::Instant::now() < deadline);
    }
}

#[tokio::test]
async fn invalid_commands_are_refused() {
    let agent = TestAgent::start().await;
    let long = ExecSpec::shell("x".repeat(limits::MAX_COMMAND_BYTES + 1)).within(SOON);
    assert!(matches!(agent.client.exec(long).await, Err(AgentError::RequestTooLarge { .. })));
    let zero =
        agent.client.exec(ExecSpec::shell("echo a\0b").within(SOON)).await.expect("sent").outcome().await;
    assert_eq!(zero.expect_err("refused").code(), Some(ErrorCode::Invalid));
}
