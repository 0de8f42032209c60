//! Ports of the host that lead into workspaces: whose they are, also while they cannot be had.

mod support;

use std::net::TcpListener;

use agentiso_daemon::{OpError, Progress, Session, SessionKind};
use support::{World, by_name, named, open, snap};

/// A workspace whose forward could not be had when the daemon began, and who has its port.
struct Robbed {
    port: u16,
    thief: TcpListener,
    session: Session,
    _daemon: agentiso_daemon::Daemon,
    _dir: tempfile::TempDir,
}

impl Robbed {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = World::new(dir.path());
        let daemon = open(dir.path(), &world).await;
        let session = daemon.open_session(SessionKind::Shell);
        session.create(named("web"), &Progress::silent()).await.unwrap();
        session.snapshot(&by_name("web"), snap("a"), false, &Progress::silent()).await.unwrap();
        let (_, forward) = session.forward_port(&by_name("web"), 80, None).await.unwrap();
        drop(session);
        daemon.shutdown().await;
        let thief = TcpListener::bind(("127.0.0.1", forward.host_port)).unwrap();
        let daemon = open(dir.path(), &world).await;
        let session = daemon.open_session(SessionKind::Shell);
        let robbed = Self { port: forward.host_port, thief, session, _daemon: daemon, _dir: dir };
        assert!(robbed.has_trouble().await);
        robbed
    }

    async fn has_trouble(&self) -> bool {
        !self.session.info(&by_name("web")).await.unwrap().network_trouble.forwards.is_empty()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_is_its_workspaces_even_while_somebody_else_listens_there() {
    let Robbed { port, thief, session, _daemon, _dir } = Robbed::new().await;
    session.create(named("other"), &Progress::silent()).await.unwrap();
    let refused = |error: OpError| assert_eq!(error.code(), "port_in_use", "{error}");
    refused(session.forward_port(&by_name("other"), 81, Some(port)).await.unwrap_err());
    drop(thief);
    refused(session.forward_port(&by_name("other"), 81, Some(port)).await.unwrap_err());
    // Whose it is may have it again, or give it up.
    session.forward_port(&by_name("web"), 80, Some(port)).await.unwrap();
    session.end_forward(&by_name("web"), 80).await.unwrap();
    session.forward_port(&by_name("other"), 81, Some(port)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_that_could_not_be_had_is_tried_again_when_the_workspace_is_started_or_restored() {
    for restored in [false, true] {
        let robbed = Robbed::new().await;
        let (session, quiet) = (&robbed.session, Progress::silent());
        match restored {
            true => drop(session.restore(&by_name("web"), &snap("a"), &quiet).await.unwrap()),
            false => drop(session.start(&by_name("web"), &quiet).await.unwrap()),
        }
        assert!(robbed.has_trouble().await, "there is still somebody");
        session.stop(&by_name("web")).await.unwrap();
        let Robbed { thief, session, _daemon, _dir, .. } = robbed;
        drop(thief);
        match restored {
            true => drop(session.restore(&by_name("web"), &snap("a"), &quiet).await.unwrap()),
            false => drop(session.start(&by_name("web"), &quiet).await.unwrap()),
        }
        let info = session.info(&by_name("web")).await.unwrap();
        assert_eq!(info.network_trouble.forwards, Default::default(), "restored: {restored}");
    }
}
