//! Skipped tests: a test that cannot run here records the reason and is counted.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Records that a test could not run, for the runner's closing line and in the test's output.
#[expect(clippy::print_stderr, reason = "the reason of a skip belongs in the test's output")]
pub fn record_skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("SKIPPED {name}: {reason}");
    if let Some(path) = std::env::var_os("AGENTISO_SKIP_LOG") {
        let line = format!("{name}: {reason}\n");
        let log = OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = log.and_then(|mut file| file.write_all(line.as_bytes())) {
            panic!("the skip could not be recorded: {error}");
        }
    }
}

/// The directory with the images and templates that tests share, made by `./x test`.
///
/// A run that claims to test everything sets `AGENTISO_TEST_CACHE`; without it (a plain `cargo test`), tests
/// that need a VM are skipped.
pub fn test_cache() -> Option<PathBuf> {
    std::env::var_os("AGENTISO_TEST_CACHE").map(PathBuf::from)
}

/// A build of the version that was landed before this one, made by `./x test` where the clone has it.
pub fn older_binary() -> Option<PathBuf> {
    std::env::var_os("AGENTISO_OLDER_BIN").map(PathBuf::from)
}

/// Starts a host, or returns from the test after recording why it cannot.
#[macro_export]
macro_rules! host_or_skip {
    () => {
        $crate::host_or_skip!($crate::HostOptions::default())
    };
    ($options:expr) => {
        match $crate::test_cache() {
            Some(_) => $crate::TestHost::start_with($options),
            None => {
                $crate::record_skip("no image cache: run the tests with ./x test");
                return;
            }
        }
    };
}
