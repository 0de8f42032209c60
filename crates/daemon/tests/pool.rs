//! Tests for the warm pool.

mod support;

use std::sync::Arc;

use agentiso_core::names::{ImageName, WorkspaceName};
use agentiso_daemon::{CreateRequest, Daemon, Progress, Rung, SessionKind};
use support::{FakeHost, FakeVms, Fault, config, eventually};

const POOL: &str = "[pool]\nenabled = true\nmin_size = 2\ntarget_free = 2\n";

async fn open(root: &std::path::Path, host: &Arc<FakeHost>, more: &str) -> Daemon {
    let vms = Arc::new(FakeVms(Arc::clone(host)));
    Daemon::open_with(config(root, &format!("{POOL}{more}")), vms).await.unwrap()
}

/// A workspace of the default size.
fn web() -> CreateRequest {
    CreateRequest { name: Some(WorkspaceName::parse("web").unwrap()), ..CreateRequest::default() }
}

/// Waits until the fake host has this many processes.
async fn processes(host: &FakeHost, wanted: usize) {
    eventually(&format!("{wanted} processes"), || host.processes().len() == wanted).await;
}

#[tokio::test]
async fn create_takes_a_pooled_vm_and_refills() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host, "").await;
    processes(&host, 2).await;
    let session = daemon.open_session(SessionKind::Client);
    assert!(session.list(None).is_empty(), "nobody sees the pool");
    let standing: Vec<_> = host.processes().into_iter().map(|(pid, _)| pid).collect();

    let created = session.create(web(), &Progress::silent()).await.unwrap();
    assert!(created.from_pool);
    assert_eq!(created.info.rung, Some(Rung::Pool));
    let pid = created.info.pid.unwrap();
    assert!(standing.contains(&pid));
    assert_eq!(host.hostnames.lock().unwrap().get(&pid).map(String::as_str), Some("web"));
    processes(&host, 3).await;
    assert_eq!(session.list(None).len(), 1);
    daemon.shutdown().await;
    assert_eq!(host.processes(), [], "the pool goes with the daemon");
}

#[tokio::test]
async fn pooled_vm_must_match_the_request_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host, "").await;
    processes(&host, 2).await;
    let session = daemon.open_session(SessionKind::Client);
    let request = CreateRequest { memory_mb: Some(1024), ..CreateRequest::default() };
    assert!(!session.create(request, &Progress::silent()).await.unwrap().from_pool);
    let other = ImageName::parse("debian-other").unwrap();
    let request = CreateRequest { base_image: Some(other), ..CreateRequest::default() };
    assert!(!session.create(request, &Progress::silent()).await.unwrap().from_pool);
    processes(&host, 4).await;
    daemon.shutdown().await;
}

#[tokio::test]
async fn pool_survives_refused_creates_and_unusable_vms() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host, "").await;
    processes(&host, 2).await;
    let session = daemon.open_session(SessionKind::Client);
    assert!(session.create(web(), &Progress::silent()).await.unwrap().from_pool);
    processes(&host, 3).await;
    assert_eq!(session.create(web(), &Progress::silent()).await.unwrap_err().code(), "name_taken");
    processes(&host, 3).await;

    host.inject(Fault::IdentifyFails);
    let created = session.create(CreateRequest::default(), &Progress::silent()).await.unwrap();
    assert!(!created.from_pool, "another was made instead");
    processes(&host, 4).await;
    daemon.shutdown().await;
}

#[test]
fn pool_left_by_a_crash_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let crashing = runtime();
    crashing.block_on(async {
        open(dir.path(), &host, "").await;
        processes(&host, 2).await;
    });
    // Every task ends immediately; VMs run on.
    drop(crashing);
    let left = host.processes();
    assert_eq!(left.len(), 2);
    runtime().block_on(async {
        let daemon = open(dir.path(), &host, "").await;
        let replaced = || host.processes().len() == 2 && !left.iter().any(|(pid, _)| host.lives(*pid));
        eventually("the old ones gone and new ones made", replaced).await;
        assert!(daemon.open_session(SessionKind::Client).list(None).is_empty());
        daemon.shutdown().await;
    });
    assert_eq!(host.processes(), []);
}

#[tokio::test]
async fn ended_pool_vm_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host, "").await;
    processes(&host, 2).await;
    let (dead, _) = host.processes()[0].clone();
    host.kill(dead, "killed from outside");
    eventually("a replacement", || !host.lives(dead) && host.processes().len() == 2).await;
    daemon.shutdown().await;
}
