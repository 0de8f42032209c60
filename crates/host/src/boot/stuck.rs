//! Records the state of a guest that does not answer. Hangs are rare, and this state is lost when the VM is ended.

use std::time::Duration;

use serde_json::json;

use super::launch::Launched;
use crate::qmp::{QmpClient, QmpError};

/// QEMU answers at once or not at all.
const DEADLINE: Duration = Duration::from_secs(5);

/// Words of each stack that are searched for return addresses.
const STACK_WORDS: u32 = 128;

/// Start of kernel text on x86-64, independent of the kernel's load address.
const KERNEL_TEXT: u64 = 0xffff_ffff_8000_0000;

impl Launched {
    /// Returns the last console lines of a guest that does not answer. Logs the state of each processor: its position,
    /// whether it sleeps, and its call stack.
    pub(crate) async fn report_stuck(&self) -> String {
        let state = match tokio::time::timeout(DEADLINE, look(self.qmp())).await {
            Ok(Ok(state)) => state,
            Ok(Err(error)) => format!("the state of the processors could not be read: {error}"),
            Err(_elapsed) => "QEMU does not answer either".to_owned(),
        };
        tracing::warn!(pid = self.process().pid(), state, "a guest does not answer");
        self.console_tail()
    }
}

async fn look(qmp: &QmpClient) -> Result<String, QmpError> {
    let status = qmp.execute("query-status", None).await?;
    let mut state = format!("{}", status["status"]);
    let processors = qmp.execute("query-cpus-fast", None).await?;
    for index in 0..processors.as_array().map_or(0, Vec::len) {
        let registers = monitor(qmp, index, "info registers").await?;
        let timers = monitor(qmp, index, "info lapic").await?;
        let dump = format!("x /{STACK_WORDS}gx 0x{}", stack_pointer(&registers));
        let stack = monitor(qmp, index, &dump).await?;
        state += &format!("\n#{index} {}", lines_with(&registers, &["RIP="]));
        state += &format!("\n   {}", lines_with(&timers, &["Timer", "ISR", "IRR"]));
        state += &format!("\n   called from {}", return_addresses(&stack));
    }
    let interrupts = monitor(qmp, 0, "info pic").await?;
    state += &format!("\n{}", lines_with(&interrupts, &["IRR"]));
    Ok(state)
}

async fn monitor(qmp: &QmpClient, cpu: usize, line: &str) -> Result<String, QmpError> {
    let arguments = json!({"command-line": line, "cpu-index": cpu});
    let answer = qmp.execute("human-monitor-command", Some(arguments)).await?;
    Ok(answer.as_str().unwrap_or_default().to_owned())
}

/// The lines that contain one of these words, joined into one line.
fn lines_with(text: &str, words: &[&str]) -> String {
    let tells = |line: &&str| words.iter().any(|word| line.contains(word));
    text.lines().map(str::trim).filter(tells).collect::<Vec<_>>().join("; ")
}

fn stack_pointer(registers: &str) -> &str {
    let value = registers.split("RSP=").nth(1).unwrap_or_default();
    value.split_whitespace().next().unwrap_or("0")
}

/// The values on a stack that look like kernel text, innermost first.
fn return_addresses(dump: &str) -> String {
    let words = dump
        .lines()
        .filter_map(|line| line.split_once(": "))
        .flat_map(|(_address, words)| words.split_whitespace());
    let values = words.filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let addresses = values.filter(|value| *value >= KERNEL_TEXT && *value < u64::MAX - 0xffff);
    addresses.map(|value| format!("{value:x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_dump_yields_only_kernel_return_addresses() {
        let dump = "ffffc90000003f58: 0xffffffff81a0b1c2 0x0000000000000001\nffffc90000003f68: 0xffff888003a1c000 0xffffffffffffffff\n";
        assert_eq!(return_addresses(dump), "ffffffff81a0b1c2");
    }
}
