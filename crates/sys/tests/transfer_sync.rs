//! Tests that a transfer from a guest fails, and leaves nothing, if it cannot be made durable.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
#![cfg(feature = "fault-injection")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use agentiso_sys::fault;
use agentiso_sys::transfer::TransferDir;

#[test]
fn download_fails_unless_it_is_synced() {
    let dir = tempfile::tempdir().expect("a directory");
    // Faults apply to a whole process, so this program runs itself once more.
    let Some(order) = std::env::var_os(fault::FILE) else {
        let mut again = Command::new(std::env::current_exe().expect("its path"));
        again
            .env(fault::FILE, dir.path().join("fault"))
            .args(["--exact", "download_fails_unless_it_is_synced"]);
        assert!(again.status().expect("it runs").success());
        return;
    };
    let inside = dir.path().join("transfers");
    let transfers = TransferDir::open(&inside).expect("it is made");
    for (fault, there) in [(true, 0), (false, 2)] {
        let order_fault = || fault.then(|| fs::write(&order, "EIO transfer.sync").expect("ordered"));
        order_fault();
        let slot = transfers.file_slot(Path::new("file")).expect("a place");
        slot.file().write_all(b"content").expect("written");
        assert_eq!(slot.commit(0o600).is_err(), fault);
        order_fault();
        let slot = transfers.tree_slot(Path::new("tree")).expect("a place");
        assert_eq!(slot.commit().is_err(), fault);
        assert_eq!(fs::read_dir(&inside).expect("listed").count(), there, "nothing is left of what failed");
    }
}
