//! Operations inside a guest: commands, files, a counting process, and faults.

use std::time::Instant;

use serde_json::json;

use super::Player;
use super::call::{About, Answer};
use crate::model::{Memory, digest};

/// The directory of all files of the soak.
pub(super) const DIR: &str = "/root/soak";

/// The number of files in each workspace.
const FILES: u64 = 8;

const SMALL_BYTES: u64 = 20_000;

/// Lines of about 7 bytes.
const LARGE_LINES: u64 = 300_000;

impl Player<'_> {
    /// Runs a command and returns its output if it exits with 0. Any other exit is a finding.
    pub(super) fn sh(&mut self, name: &str, command: &str) -> Option<String> {
        let short = self.workspaces.get(name)?.short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let since = Instant::now();
        let arguments = json!({"workspace_id": name, "command": command, "timeout_secs": 150});
        let answer = self.call("exec", &arguments, &about).done()?.json();
        if answer["exit_code"] != 0 {
            self.unexpected(&format!("in {name}: {command}: {answer}"), since);
            return None;
        }
        answer["stdout"].as_str().map(str::to_owned)
    }

    pub(super) fn exec(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let (a, b) = (choice % 10_000, choice / 7 % 10_000);
        if let Some(said) = self.sh(&name, &format!("echo $(({a} + {b}))"))
            && said.trim() != (a + b).to_string()
        {
            self.unexpected(&format!("{a} + {b} is {said:?} in {name}"), Instant::now());
        }
    }

    /// Writes a file through the file tool, and syncs it before the model counts it.
    pub(super) fn write(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let file = format!("f{}", choice / 11 % FILES);
        let mut content = String::new();
        let length = self.rng.below(SMALL_BYTES) + 1;
        while (content.len() as u64) < length {
            content.push_str(&format!("{:016x}\n", self.rng.draw()));
        }
        let digest = digest(content.as_bytes());
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        workspace.write_begins(&file, &digest);
        let short = workspace.short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let arguments = json!({"workspace_id": name, "path": format!("{DIR}/{file}"), "content": content});
        if self.call("file_write", &arguments, &about).is_done() && self.sh(&name, "sync").is_some() {
            self.wrote(&name, &file, &digest);
        } else {
            self.check_one(&name);
        }
    }

    /// Writes a large file by a command and replaces the old one atomically.
    pub(super) fn write_large(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let file = format!("f{}", choice / 11 % FILES);
        let first = self.rng.below(1_000_000);
        let last = first + 1 + self.rng.below(LARGE_LINES);
        let content: String = (first..=last).map(|number| format!("{number}\n")).collect();
        let digest = digest(content.as_bytes());
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        workspace.write_begins(&file, &digest);
        let command = format!(
            "mkdir -p {DIR} && seq -f %.0f {first} {last} > /root/new && sync /root/new && mv /root/new {DIR}/{file} && sync"
        );
        if self.sh(&name, &command).is_some() {
            self.wrote(&name, &file, &digest);
        } else {
            self.check_one(&name);
        }
    }

    fn wrote(&mut self, name: &str, file: &str, digest: &str) {
        if let Some(workspace) = self.workspaces.get_mut(name) {
            workspace.write_ends(file, digest);
        }
    }

    /// Starts the counting process if there is none.
    pub(super) fn count(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        if workspace.contents.iter().any(|contents| contents.memory != Memory::Empty) {
            self.check_one(&name);
            return;
        }
        let token = format!("t{:08x}", self.rng.draw() >> 32);
        for contents in &mut workspace.contents {
            contents.memory = Memory::MayCount { token: token.clone() };
        }
        let counter = "while (1) { $i++; open(F, \">/dev/shm/count.new\"); print F $i; close F; \
                       rename(\"/dev/shm/count.new\", \"/dev/shm/count\"); select(undef, undef, undef, 1) }";
        let command = format!(
            "setsid perl -e '{counter}' >/dev/null 2>&1 </dev/null & echo $! > /dev/shm/pid && echo {token} > /dev/shm/token && \
             n=0; until [ -s /dev/shm/count ] || [ $n -gt 100 ]; do sleep 0.1; n=$((n + 1)); done"
        );
        let started = self.sh(&name, &command).is_some();
        if let Some(workspace) = self.workspaces.get_mut(&name)
            && started
        {
            for contents in &mut workspace.contents {
                contents.memory = Memory::Counts { token: token.clone(), at_least: 0 };
            }
        } else {
            // The state of token, count and process is unknown, so the VM is stopped, which ends all of them.
            self.stop_vm(&name);
        }
    }

    /// Stops a VM whose memory contents are unknown.
    fn stop_vm(&mut self, name: &str) {
        if !self.ensure_running(name) {
            return;
        }
        let Some(workspace) = self.workspaces.get_mut(name) else { return };
        workspace.may_be_stopped = true;
        let short = workspace.short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let answer = self.call("workspace_stop", &json!({"workspace_id": name}), &about);
        if let Some(workspace) = self.workspaces.get_mut(name) {
            match answer {
                Answer::Done(_) => workspace.lose_memory(),
                Answer::Refused { .. } | Answer::Cut => workspace.may_lose_memory(),
            }
        }
    }

    pub(super) fn panic_guest(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        let short = workspace.short().to_owned();
        workspace.lose_memory();
        self.site.weather.strike(&short);
        let about = About { vm: Some(&short), ..About::default() };
        let command = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger";
        let answer = self.call("exec", &json!({"workspace_id": name, "command": command}), &about);
        if answer.is_done() {
            self.unexpected(&format!("{name} did not panic"), Instant::now());
        }
        self.check_one(&name);
    }

    /// Makes the guest run out of memory. The process that takes it is killed; the VM and its files stay.
    pub(super) fn fill_memory(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let short = self.workspaces[&name].short().to_owned();
        // The guest's kernel may kill other processes too, such as the counting one.
        if let Some(workspace) = self.workspaces.get_mut(&name) {
            workspace.may_lose_memory();
        }
        let about = About { vm: Some(&short), ..About::default() };
        let command = "perl -e '$x = \"x\" x (1 << 29); $y = $x . $x; sleep 1'; echo $?";
        self.call("exec", &json!({"workspace_id": name, "command": command, "timeout_secs": 120}), &about);
        self.check_one(&name);
    }

    pub(super) fn turn_clock(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let days = ["+1 day", "-1 day", "+400 days"][usize::try_from(choice / 13 % 3).unwrap_or(0)];
        self.sh(&name, &format!("date -s '{days}' && sync"));
        self.check_one(&name);
    }
}
