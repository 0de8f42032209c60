//! Tests of jobs, and of the variables that all commands get.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agentiso_agent::{AgentClient, ErrorCode, limits};
use agentiso_core::paths::GuestPath;
use agentiso_vm::{Command, ExecSpec, JobQuery, JobState};

use crate::support::{SOON, TestAgent, eventually, runs};

fn job(command: impl Into<String>) -> Command {
    Command { command: command.into(), workdir: None, env: BTreeMap::new() }
}

fn query(id: u64) -> JobQuery {
    JobQuery { id, head_bytes: 1000, tail_bytes: 1000, ..JobQuery::default() }
}

async fn wait(client: &AgentClient, id: u64) -> JobState {
    let state = client.poll_job(JobQuery { wait: SOON, ..query(id) }).await.expect("polled");
    assert!(!state.running, "{state:?}");
    state
}

fn vars(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn job_can_be_polled_during_and_after_running() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let gate = dir.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RWXU).expect("a pipe");
    let script = format!("echo one; echo err >&2; read line < {}; echo $line; exit 3", gate.display());
    let id = agent.client.start_job(job(script)).await.expect("started");
    assert_eq!(id, 1);
    let mut state = agent.client.poll_job(query(id)).await.expect("polled");
    while state.stdout.total_bytes < 4 || state.stderr.total_bytes < 4 {
        state = agent.client.poll_job(query(id)).await.expect("polled");
    }
    assert_eq!((state.running, state.exit_code, &state.stdout.head[..]), (true, None, &b"one\n"[..]));
    tokio::task::spawn_blocking(move || std::fs::write(gate, "two\n")).await.expect("ran").expect("written");
    for _ in 0..3 {
        let state = wait(&agent.client, id).await;
        assert_eq!((state.exit_code, state.signal), (Some(3), None));
        assert_eq!((&state.stdout.head[..], &state.stderr.head[..]), (&b"one\ntwo\n"[..], &b"err\n"[..]));
    }
    let rest = agent.client.poll_job(JobQuery { stdout_offset: 4, stderr_offset: 99, ..query(id) }).await;
    let rest = rest.expect("polled");
    assert_eq!((&rest.stdout.head[..], rest.stdout.total_bytes), (&b"two\n"[..], 4));
    assert_eq!((rest.stderr.head.len(), rest.stderr.total_bytes), (0, 0));
    assert_eq!(agent.client.start_job(job("true")).await.expect("started"), 2);
}

#[tokio::test]
async fn killing_a_job_ends_its_whole_group() {
    let agent = TestAgent::start().await;
    let id = agent.client.start_job(job("sleep 1000 & echo $!; echo $$; wait")).await.expect("started");
    let mut printed = String::new();
    while printed.lines().count() < 2 {
        let state = agent.client.poll_job(query(id)).await.expect("polled");
        printed = String::from_utf8(state.stdout.head.to_vec()).expect("text");
    }
    assert!(printed.lines().all(runs), "{printed}");
    assert!(!agent.client.kill_job(id, 9).await.expect("killed"));
    let state = agent.client.poll_job(query(id)).await.expect("polled");
    assert_eq!((state.running, state.exit_code, state.signal), (false, None, Some(9)));
    eventually("all of it is dead", || !printed.lines().any(runs)).await;
    assert!(!agent.client.kill_job(id, 9).await.expect("killing what has ended succeeds"));
}

#[tokio::test]
async fn handled_signal_leaves_the_job_running() {
    let agent = TestAgent::start().await;
    let script = "trap 'echo got' USR1; echo ready; while :; do sleep 0.05; done";
    let id = agent.client.start_job(job(script)).await.expect("started");
    let printed = async |text: &[u8]| {
        while agent.client.poll_job(query(id)).await.expect("polled").stdout.head != text {}
    };
    tokio::time::timeout(SOON, printed(b"ready\n")).await.expect("it is ready");
    assert!(agent.client.kill_job(id, 10).await.expect("signalled"), "it still runs");
    tokio::time::timeout(SOON, printed(b"ready\ngot\n")).await.expect("it got the signal");
    assert!(!agent.client.kill_job(id, 15).await.expect("ended"));
    assert_eq!(wait(&agent.client, id).await.signal, Some(15));
    let error = agent.client.kill_job(id, 99).await.expect_err("no such signal");
    assert_eq!(error.code(), Some(ErrorCode::Invalid));
}

#[tokio::test]
async fn unknown_job_error_names_known_jobs() {
    let agent = TestAgent::start().await;
    let none = agent.client.poll_job(query(1)).await.expect_err("refused");
    assert_eq!(none.code(), Some(ErrorCode::NoJob));
    agent.client.start_job(job("true")).await.expect("started");
    for id in [0, 2, u64::MAX] {
        let error = agent.client.kill_job(id, 9).await.expect_err("refused");
        assert_eq!(error.code(), Some(ErrorCode::NoJob));
        assert!(error.to_string().contains("known jobs: 1"), "{error}");
    }
}

#[tokio::test]
async fn failed_job_start_leaves_no_job() {
    let agent = TestAgent::start().await;
    let spec = Command { workdir: Some(GuestPath::parse("/does/not/exist").unwrap()), ..job("true") };
    let error = agent.client.start_job(spec).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::BadWorkdir));
    let error = agent.client.start_job(job("")).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::Invalid));
    assert_eq!(agent.client.list_jobs().await.expect("listed"), Vec::new());
}

#[tokio::test]
async fn long_job_output_is_kept_in_part() {
    let agent = TestAgent::start().await;
    let id = agent.client.start_job(job("seq 1 2000000; seq 1 10 >&2")).await.expect("started");
    wait(&agent.client, id).await;
    let all = JobQuery { head_bytes: limits::MAX_CAPTURE_BYTES, tail_bytes: 0, ..query(id) };
    let state = agent.client.poll_job(all).await.expect("polled");
    let total = state.stdout.total_bytes;
    assert_eq!((total, state.stderr.total_bytes), (14_888_896, 21));
    assert_eq!(state.stdout.head.len(), limits::JOB_HEAD_BYTES);
    let end = JobQuery { stdout_offset: total - 8, ..query(id) };
    assert_eq!(&agent.client.poll_job(end).await.expect("polled").stdout.head[..], b"2000000\n");
    let lost = JobQuery { stdout_offset: 5_000_000, head_bytes: 4, tail_bytes: 4, ..query(id) };
    let lost = agent.client.poll_job(lost).await.expect("polled").stdout;
    assert_eq!(
        (lost.head.len(), &lost.tail[..], lost.total_bytes),
        (0, &b"2000000\n"[..], total - 5_000_000)
    );
}

#[tokio::test]
async fn oldest_job_output_is_dropped_first() {
    let agent = TestAgent::start().await;
    let each = limits::MAX_CAPTURE_BYTES;
    let jobs = limits::MAX_JOBS_OUTPUT_BYTES as u64 / each + 2;
    for _ in 0..jobs {
        let id = agent.client.start_job(job(format!("head -c {each} /dev/zero"))).await.expect("started");
        assert_eq!(wait(&agent.client, id).await.stdout.total_bytes, each);
    }
    let kept = async |id| {
        let all = JobQuery { head_bytes: each, ..query(id) };
        let stdout = agent.client.poll_job(all).await.expect("polled").stdout;
        (stdout.head.len() + stdout.tail.len()) as u64
    };
    assert_eq!((kept(1).await, kept(jobs).await), (0, each));
    let summaries = agent.client.list_jobs().await.expect("listed");
    assert!(summaries.len() as u64 == jobs && summaries.iter().all(|job| job.stdout_bytes == each));
}

#[tokio::test]
async fn jobs_beyond_the_limit_are_refused() {
    let agent = TestAgent::start().await;
    for number in 1..=limits::MAX_RUNNING_JOBS as u64 {
        assert_eq!(agent.client.start_job(job("sleep 1000")).await.expect("started"), number);
    }
    let error = agent.client.start_job(job("true")).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::Busy), "{error}");
    assert_eq!(agent.sh("echo on").await.exit_code, Some(0));
    for number in 1..=limits::MAX_RUNNING_JOBS as u64 {
        agent.client.kill_job(number, 9).await.expect("killed");
    }
    let id = agent.client.start_job(job("true")).await.expect("there is room again");
    assert_eq!(wait(&agent.client, id).await.exit_code, Some(0));
}

#[tokio::test]
async fn oldest_ended_job_beyond_thousand_is_forgotten() {
    let agent = TestAgent::start().await;
    let lasting = agent.client.start_job(job("sleep 1000")).await.expect("started");
    for number in 2..=limits::MAX_JOBS as u64 + 1 {
        let id = agent.client.start_job(job(":")).await.expect("started");
        assert_eq!(id, number);
        wait(&agent.client, id).await;
    }
    assert_eq!(agent.client.list_jobs().await.expect("listed").len(), 1000);
    assert!(agent.client.poll_job(query(lasting)).await.expect("one that runs is kept").running);
    let error = agent.client.poll_job(query(2)).await.expect_err("forgotten");
    assert_eq!(error.code(), Some(ErrorCode::NoJob));
    agent.client.kill_job(lasting, 9).await.expect("killed");
}

#[tokio::test]
async fn command_ending_in_time_leaves_no_job() {
    let agent = TestAgent::start().await;
    let ended = agent.client.exec_or_job(job("echo out; exit 7"), SOON, 1000, 0).await.expect("it ran");
    assert_eq!(
        (ended.job, ended.state.exit_code, &ended.state.stdout.head[..]),
        (None, Some(7), &b"out\n"[..])
    );
    assert_eq!(agent.client.list_jobs().await.expect("listed"), Vec::new());
}

#[tokio::test]
async fn slow_command_becomes_a_job() {
    let agent = TestAgent::start().await;
    let started = Instant::now();
    let script = "echo before; sleep 2; echo after";
    let kept =
        agent.client.exec_or_job(job(script), Duration::from_millis(500), 1000, 0).await.expect("it runs");
    assert!(started.elapsed() < Duration::from_secs(2) && kept.state.running);
    assert_eq!((kept.job, &kept.state.stdout.head[..]), (Some(1), &b"before\n"[..]));
    assert_eq!(&wait(&agent.client, 1).await.stdout.head[..], b"before\nafter\n");
}

#[tokio::test]
async fn abandoned_command_is_killed_before_becoming_a_job() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pids");
    let script = format!("sleep 1000 & echo $$ $! > {}; wait", file.display());
    let call = agent.client.exec_or_job(job(script), SOON, 1000, 0);
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    let running = async {
        while !read().ends_with('\n') {
            tokio::task::yield_now().await
        }
    };
    tokio::select! {
        ended = call => panic!("{ended:?}"),
        () = running => {}
    }
    let text = read();
    eventually("all of it is killed", || !text.split_whitespace().any(runs)).await;
    assert_eq!(agent.client.list_jobs().await.expect("listed"), Vec::new());
}

#[tokio::test]
async fn call_variables_override_stored_variables() {
    let agent = TestAgent::start().await;
    let client = &agent.client;
    assert_eq!(client.set_env(vars(&[("A", "1"), ("B", "2")])).await.expect("set"), 2);
    assert_eq!(client.set_env(vars(&[("B", "3")])).await.expect("set"), 2);
    assert_eq!(&agent.sh("echo $A $B").await.stdout.head[..], b"1 3\n");
    let mut spec = ExecSpec::shell("echo $A $B").within(SOON);
    spec.env = vars(&[("A", "call")]);
    assert_eq!(&agent.run(spec).await.stdout.head[..], b"call 3\n");
    let id = client.start_job(job("echo $A $B")).await.expect("started");
    assert_eq!(&wait(client, id).await.stdout.head[..], b"1 3\n");
    let ended = client.exec_or_job(job("echo $A $B"), SOON, 100, 0).await.expect("it ran");
    assert_eq!(&ended.state.stdout.head[..], b"1 3\n");
    let error = client.set_env(vars(&[("A", "9"), ("C=", "x")])).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::Invalid));
    assert_eq!(&agent.sh("echo $A").await.stdout.head[..], b"1\n", "nothing of it was set");
}
