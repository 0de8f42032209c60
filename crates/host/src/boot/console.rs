//! Extracts the few lines of a console that explain a failed boot.
//!
//! A kernel that gives up prints its reason and then a page of registers and return addresses. Only the reason helps
//! the reader of an error; everything stays in the workspace's console log.

/// The length of the console's end that is searched.
pub(crate) const READ: u64 = 64 << 10;

/// The number of lines that are quoted.
const MAX_LINES: usize = 6;

/// The number of characters of a line that are quoted.
const MAX_LINE: usize = 200;

/// Beginnings of the lines of a dump.
const DUMPED: [&str; 30] = [
    "RIP:",
    "RSP:",
    "RAX:",
    "RBX:",
    "RCX:",
    "RDX:",
    "RBP:",
    "RSI:",
    "RDI:",
    "R08:",
    "R10:",
    "R13:",
    "FS:",
    "GS:",
    "CS:",
    "CR2:",
    "DR0:",
    "DR3:",
    "PKRU:",
    "EFLAGS:",
    "Code:",
    "Call Trace:",
    "<TASK>",
    "</TASK>",
    "CPU:",
    "Hardware name:",
    "Modules linked in:",
    "Kernel Offset:",
    "---[",
    "ORIG_RAX:",
];

/// The last lines that are not part of a dump.
pub(crate) fn last_lines(console: &str) -> String {
    let telling = console.lines().map(without_time).filter(|line| !line.is_empty() && !is_dump(line));
    let mut lines: Vec<String> = Vec::new();
    for line in telling {
        let line: String = line.chars().filter(|c| !c.is_control()).take(MAX_LINE).collect();
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines.split_off(lines.len().saturating_sub(MAX_LINES)).join("\n")
}

/// A kernel's line without its leading timestamp: `[    0.123456] text`.
fn without_time(line: &str) -> &str {
    let line = line.trim();
    let Some((time, text)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return line;
    };
    let is_time =
        time.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !time.trim().is_empty();
    if is_time { text.trim_start() } else { line }
}

fn is_dump(line: &str) -> bool {
    let is_frame = line
        .split_whitespace()
        .any(|word| word.split_once("+0x").is_some_and(|(_, offset)| offset.contains("/0x")));
    is_frame || DUMPED.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANIC: &str = "\
[    1.100000] /dev/root: Can't open blockdev
[    1.200000] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)
[    1.200001] CPU: 0 PID: 1 Comm: swapper/0 Not tainted 6.1.0-18-cloud-amd64 #1
[    1.200002] Hardware name: QEMU Standard PC
[    1.200003] Call Trace:
[    1.200004]  <TASK>
[    1.200005]  dump_stack_lvl+0x44/0x5c
[    1.200006]  panic+0x118/0x2ed
[    1.200007]  ? rest_init+0xd0/0xd0
[    1.200008] RIP: 0033:0x0
[    1.200009] RAX: 0000000000000000 RBX: 0000000000000000 RCX: 0000000000000000
[    1.200010]  </TASK>
[    1.200011] ---[ end Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0) ]---
";

    #[test]
    fn panic_is_quoted_without_its_dump() {
        assert_eq!(
            last_lines(PANIC),
            "/dev/root: Can't open blockdev\n\
             Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"
        );
    }

    #[test]
    fn only_last_console_lines_are_quoted() {
        let text: String = (0..100).map(|number| format!("line {number}\r\n")).collect();
        assert_eq!(last_lines(&text), "line 94\nline 95\nline 96\nline 97\nline 98\nline 99");
        assert_eq!(last_lines(&"ä".repeat(1000)).chars().count(), MAX_LINE);
        assert_eq!(last_lines("again\nagain\nagain\n"), "again");
        assert_eq!(last_lines("[not a time] said\n\x1b[2Jcleared"), "[not a time] said\n[2Jcleared");
        assert_eq!(last_lines(""), "");
    }
}
