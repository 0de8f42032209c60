//! Machines that stand ready.

mod support;

use std::sync::Arc;

use agentiso_core::names::{ImageName, WorkspaceName};
use agentiso_daemon::{CreateRequest, Daemon, Progress, Rung, SessionKind};
use support::{Fault, Handle, World, config, eventually};

const POOL: &str = "[pool]\nenabled = true\nmin_size = 2\ntarget_free = 2\n";

async fn open(root: &std::path::Path, world: &Arc<World>, more: &str) -> Daemon {
    let machines = Arc::new(Handle(Arc::clone(world)));
    Daemon::open_with(config(root, &format!("{POOL}{more}")), machines).await.unwrap()
}

/// A workspace of the default size.
fn web() -> CreateRequest {
    CreateRequest { name: Some(WorkspaceName::parse("web").unwrap()), ..CreateRequest::default() }
}

/// Waits until the world has this many processes.
async fn processes(world: &World, wanted: usize) {
    eventually(&format!("{wanted} processes"), || world.processes().len() == wanted).await;
}

#[tokio::test]
async fn a_create_takes_a_machine_that_stands_ready_and_the_next_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = open(dir.path(), &world, "").await;
    processes(&world, 2).await;
    let session = daemon.open_session(SessionKind::Client);
    assert!(session.list(None).is_empty(), "nobody sees the pool");
    let standing: Vec<_> = world.processes().into_iter().map(|(pid, _)| pid).collect();

    let created = session.create(web(), &Progress::silent()).await.unwrap();
    assert!(created.from_pool);
    assert_eq!(created.info.rung, Some(Rung::Pool));
    let pid = created.info.pid.unwrap();
    assert!(standing.contains(&pid));
    assert_eq!(world.hostnames.lock().unwrap().get(&pid).map(String::as_str), Some("web"));
    processes(&world, 3).await;
    assert_eq!(session.list(None).len(), 1);
    daemon.shutdown().await;
    assert_eq!(world.processes(), [], "the pool goes with the daemon");
}

#[tokio::test]
async fn only_what_is_exactly_wanted_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = open(dir.path(), &world, "").await;
    processes(&world, 2).await;
    let session = daemon.open_session(SessionKind::Client);
    let request = CreateRequest { memory_mb: Some(1024), ..CreateRequest::default() };
    assert!(!session.create(request, &Progress::silent()).await.unwrap().from_pool);
    let other = ImageName::parse("debian-other").unwrap();
    let request = CreateRequest { base_image: Some(other), ..CreateRequest::default() };
    assert!(!session.create(request, &Progress::silent()).await.unwrap().from_pool);
    processes(&world, 4).await;
    daemon.shutdown().await;
}

#[tokio::test]
async fn a_refused_create_leaves_the_pool_as_it_was_and_a_useless_machine_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = open(dir.path(), &world, "").await;
    processes(&world, 2).await;
    let session = daemon.open_session(SessionKind::Client);
    assert!(session.create(web(), &Progress::silent()).await.unwrap().from_pool);
    processes(&world, 3).await;
    assert_eq!(session.create(web(), &Progress::silent()).await.unwrap_err().code(), "name_taken");
    processes(&world, 3).await;

    world.inject(Fault::IdentifyFails);
    let created = session.create(CreateRequest::default(), &Progress::silent()).await.unwrap();
    assert!(!created.from_pool, "another was made instead");
    processes(&world, 4).await;
    daemon.shutdown().await;
}

#[test]
fn what_a_crash_leaves_of_a_pool_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let crashing = runtime();
    crashing.block_on(async {
        open(dir.path(), &world, "").await;
        processes(&world, 2).await;
    });
    // Every task ends where it stands; machines go on.
    drop(crashing);
    let left = world.processes();
    assert_eq!(left.len(), 2);
    runtime().block_on(async {
        let daemon = open(dir.path(), &world, "").await;
        let replaced = || world.processes().len() == 2 && !left.iter().any(|(pid, _)| world.lives(*pid));
        eventually("the old ones gone and new ones made", replaced).await;
        assert!(daemon.open_session(SessionKind::Client).list(None).is_empty());
        daemon.shutdown().await;
    });
    assert_eq!(world.processes(), []);
}

#[tokio::test]
async fn a_machine_of_the_pool_that_ends_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = open(dir.path(), &world, "").await;
    processes(&world, 2).await;
    let (dead, _) = world.processes()[0].clone();
    world.kill(dead, "killed from outside");
    eventually("a replacement", || !world.lives(dead) && world.processes().len() == 2).await;
    daemon.shutdown().await;
}
