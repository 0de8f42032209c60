//! Arbitrary bytes from a compromised QEMU for the QMP client: every call must end, and none may panic.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use agentiso_host::qmp::QmpClient;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::time::timeout;

/// More than all deadlines of the calls together. The paused clock skips every wait.
const LIMIT: Duration = Duration::from_secs(3600);

const GREETING: &[u8] = b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 1}\n";

static SOCKET: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("agentiso-fuzz-qmp-{}", std::process::id())));

/// A QEMU that greets, sends the input, closes its side, and reads until the client disconnects.
async fn qemu(listener: UnixListener, data: &[u8]) {
    let Ok((mut stream, _)) = listener.accept().await else { return };
    if stream.write_all(GREETING).await.is_err() || stream.write_all(data).await.is_err() {
        return;
    }
    let _ = stream.shutdown().await;
    let mut heard = [0; 4096];
    while stream.read(&mut heard).await.is_ok_and(|count| count > 0) {}
}

async fn calls() {
    let Ok(client) = QmpClient::connect(&SOCKET).await else { return };
    let mut events = client.events();
    let _ = client.disk_nodes(Path::new("/w")).await;
    let _ = client.wake().await;
    let _ = client.agent_hung_up().await;
    while let Ok(event) = events.try_recv() {
        let _ = (event.shutdown_cause(), event.stall(), event.is_growth(), event.migration_status());
    }
    client.closed().await;
}

fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let _ = std::fs::remove_file(&*SOCKET);
        let listener = UnixListener::bind(&*SOCKET).expect("a socket");
        let both = async { tokio::join!(calls(), qemu(listener, data)) };
        assert!(timeout(LIMIT, both).await.is_ok(), "the client hangs");
    });
});
