//! The versions of the programs that took part in a build, for manifests.

use std::collections::BTreeMap;
use std::time::Duration;

use agentiso_sys::command::Tool;

const LIMIT: Duration = Duration::from_secs(20);

/// The first line of each program's version output. Programs that cannot be run are left out.
pub(crate) async fn versions(programs: &[&'static str]) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for program in programs {
        let flag = if *program == "mke2fs" { "-V" } else { "--version" };
        if let Ok(output) = Tool::new(program, program, LIMIT).args([flag]).run().await {
            // mke2fs prints it on standard error.
            let text = if output.stdout.trim().is_empty() { &output.stderr } else { &output.stdout };
            if let Some(line) = text.lines().next() {
                versions.insert((*program).to_owned(), line.trim().to_owned());
            }
        }
    }
    versions
}
