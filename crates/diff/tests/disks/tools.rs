//! External programs that make disks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of a program, also in directories that are not in the PATH of ordinary users.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Records a skip and returns from the test if a program is missing.
macro_rules! need {
    ($($program:literal),+) => {
        $(if $crate::tools::find($program).is_none() {
            agentiso_testkit::record_skip(concat!($program, " is not installed"));
            return;
        })+
    };
}
pub(crate) use need;

/// Runs a program that must succeed, and returns its output.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> String {
    let mut command = Command::new(find(program).expect("the program was found before"));
    // Fixed time and locale make file systems reproducible.
    command.args(arguments).env("LC_ALL", "C").env("E2FSPROGS_FAKE_TIME", "1700000000").env("TZ", "UTC");
    let output = command.output().expect("the program starts");
    let text =
        [output.stdout, output.stderr].map(|part| String::from_utf8_lossy(&part).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

pub(crate) fn qemu_io(disk: &Path, commands: &[&str]) {
    let mut arguments = vec!["-f".to_owned(), "qcow2".to_owned()];
    commands.iter().for_each(|command| arguments.extend(["-c".to_owned(), (*command).to_owned()]));
    arguments.push(disk.display().to_string());
    let said = run("qemu-io", arguments);
    assert!(!said.contains("failed"), "{commands:?}: {said}");
}
