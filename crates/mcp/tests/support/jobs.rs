//! Jobs of a guest in memory.
//!
//! Commands: `echo TEXT`, `bytes N`, `exit N`, `pwd`, `env NAME`, and `wait` and `serve`, which run until they are
//! killed.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_daemon::{AgentFailure, Captured, Command, GuestCode, JobQuery, JobState, JobSummary};
use bytes::Bytes;
use tokio::sync::watch;

use super::guest::Waiting;

#[derive(Clone, Debug, Default)]
struct End {
    exit_code: Option<i32>,
    signal: Option<i32>,
}

struct Job {
    command: String,
    stdout: Vec<u8>,
    end: watch::Sender<Option<End>>,
    waiting: Option<Waiting>,
}

pub(crate) struct FakeJobs {
    jobs: Mutex<BTreeMap<u64, Job>>,
    waiting: Arc<AtomicUsize>,
}

impl std::fmt::Debug for FakeJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeJobs")
    }
}

impl FakeJobs {
    pub(crate) fn new(waiting: Arc<AtomicUsize>) -> Self {
        Self { jobs: Mutex::default(), waiting }
    }

    pub(crate) fn start(&self, command: &Command) -> u64 {
        let (word, rest) = command.command.split_once(' ').unwrap_or((&command.command, ""));
        let (stdout, exit_code) = match word {
            "echo" => (format!("{rest}\n").into_bytes(), Some(0)),
            "bytes" => (vec![b'x'; rest.parse().unwrap_or(0)], Some(0)),
            "exit" => (Vec::new(), rest.parse().ok()),
            "pwd" => (command.workdir.as_ref().map_or("", |path| path.as_str()).into(), Some(0)),
            "env" => (command.env.get(rest).cloned().unwrap_or_default().into_bytes(), Some(0)),
            "wait" => (b"so far".to_vec(), None),
            "serve" => (b"serve".to_vec(), None),
            _ => (Vec::new(), Some(127)),
        };
        let waiting = exit_code.is_none().then(|| Waiting::begin(&self.waiting));
        let end = watch::Sender::new(exit_code.map(|code| End { exit_code: Some(code), signal: None }));
        let mut jobs = self.jobs.lock().expect("no panic");
        let id = jobs.len() as u64 + 1;
        jobs.insert(id, Job { command: command.command.clone(), stdout, end, waiting });
        id
    }

    pub(crate) async fn poll(&self, query: JobQuery) -> Result<JobState, AgentFailure> {
        let mut ended = {
            let jobs = self.jobs.lock().expect("no panic");
            jobs.get(&query.id).ok_or_else(missing)?.end.subscribe()
        };
        drop(tokio::time::timeout(query.wait, ended.wait_for(Option::is_some)).await);
        let jobs = self.jobs.lock().expect("no panic");
        let job = jobs.get(&query.id).ok_or_else(missing)?;
        let end = job.end.borrow().clone();
        let head = job.stdout.len().min(query.head_bytes as usize);
        let tail = (job.stdout.len() - head).min(query.tail_bytes as usize);
        Ok(JobState {
            running: end.is_none(),
            exit_code: end.as_ref().and_then(|end| end.exit_code),
            signal: end.as_ref().and_then(|end| end.signal),
            stdout: Captured {
                head: Bytes::copy_from_slice(&job.stdout[..head]),
                tail: Bytes::copy_from_slice(&job.stdout[job.stdout.len() - tail..]),
                total_bytes: job.stdout.len() as u64,
            },
            ..JobState::default()
        })
    }

    pub(crate) fn kill(&self, id: u64, signal: i32) -> Result<bool, AgentFailure> {
        let mut jobs = self.jobs.lock().expect("no panic");
        let job = jobs.get_mut(&id).ok_or_else(missing)?;
        job.waiting = None;
        job.end.send_replace(Some(End { exit_code: None, signal: Some(signal) }));
        Ok(false)
    }

    pub(crate) fn list(&self) -> Vec<JobSummary> {
        let jobs = self.jobs.lock().expect("no panic");
        let summary = |(id, job): (&u64, &Job)| {
            let end = job.end.borrow().clone();
            JobSummary {
                id: *id,
                command: job.command.clone(),
                running: end.is_none(),
                exit_code: end.as_ref().and_then(|end| end.exit_code),
                signal: end.as_ref().and_then(|end| end.signal),
                stdout_bytes: job.stdout.len() as u64,
                stderr_bytes: 0,
                duration: Duration::ZERO,
            }
        };
        jobs.iter().map(summary).collect()
    }
}

fn missing() -> AgentFailure {
    AgentFailure::Refused { code: GuestCode::NoJob, message: "there is no such job".to_owned() }
}
