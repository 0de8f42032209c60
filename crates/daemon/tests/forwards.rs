//! Tests that a forwarded port of the host stays reserved for its workspace, even while the port is not available.

mod support;

use std::net::TcpListener;

use agentiso_daemon::{OpError, Progress, Session, SessionKind};
use support::{FakeHost, by_name, named, open, snap};

/// A workspace whose forward could not listen when the daemon started, and the listener that has its port.
struct BlockedForward {
    port: u16,
    other_listener: TcpListener,
    session: Session,
    _daemon: agentiso_daemon::Daemon,
    _dir: tempfile::TempDir,
}

impl BlockedForward {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = FakeHost::new(dir.path());
        let daemon = open(dir.path(), &host).await;
        let session = daemon.open_session(SessionKind::Shell);
        session.create(named("web"), &Progress::silent()).await.unwrap();
        session.snapshot(&by_name("web"), snap("a"), false, &Progress::silent()).await.unwrap();
        let (_, forward) = session.forward_port(&by_name("web"), 80, None).await.unwrap();
        drop(session);
        daemon.shutdown().await;
        let other_listener = TcpListener::bind(("127.0.0.1", forward.host_port)).unwrap();
        let daemon = open(dir.path(), &host).await;
        let session = daemon.open_session(SessionKind::Shell);
        let blocked = Self { port: forward.host_port, other_listener, session, _daemon: daemon, _dir: dir };
        assert!(blocked.has_trouble().await);
        blocked
    }

    async fn has_trouble(&self) -> bool {
        !self.session.info(&by_name("web")).await.unwrap().network_trouble.forwards.is_empty()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_port_stays_reserved_while_unavailable() {
    let BlockedForward { port, other_listener, session, _daemon, _dir } = BlockedForward::new().await;
    session.create(named("other"), &Progress::silent()).await.unwrap();
    let refused = |error: OpError| assert_eq!(error.code(), "port_in_use", "{error}");
    refused(session.forward_port(&by_name("other"), 81, Some(port)).await.unwrap_err());
    drop(other_listener);
    refused(session.forward_port(&by_name("other"), 81, Some(port)).await.unwrap_err());
    // The workspace that has the forward may listen again, or end the forward.
    session.forward_port(&by_name("web"), 80, Some(port)).await.unwrap();
    session.end_forward(&by_name("web"), 80).await.unwrap();
    session.forward_port(&by_name("other"), 81, Some(port)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_forward_is_retried_on_start_and_restore() {
    for restored in [false, true] {
        let blocked = BlockedForward::new().await;
        let (session, quiet) = (&blocked.session, Progress::silent());
        match restored {
            true => drop(session.restore(&by_name("web"), &snap("a"), &quiet).await.unwrap()),
            false => drop(session.start(&by_name("web"), &quiet).await.unwrap()),
        }
        assert!(blocked.has_trouble().await, "there is still somebody");
        session.stop(&by_name("web")).await.unwrap();
        let BlockedForward { other_listener, session, _daemon, _dir, .. } = blocked;
        drop(other_listener);
        match restored {
            true => drop(session.restore(&by_name("web"), &snap("a"), &quiet).await.unwrap()),
            false => drop(session.start(&by_name("web"), &quiet).await.unwrap()),
        }
        let info = session.info(&by_name("web")).await.unwrap();
        assert_eq!(info.network_trouble.forwards, Default::default(), "restored: {restored}");
    }
}
