//! Operations on files: in a guest, between guest and host, in repositories, and in the vault.

use std::fs;

use agentiso_testkit::eventually;
use serde_json::{Value, json};

use crate::deeds::{Operation, operation};
use crate::stage::{BASE, OTHER, PATIENCE, Stage};

/// Large enough that writing it takes a while.
const LARGE: usize = 4 << 20;

/// The number of files in a directory that is transferred.
const MANY: usize = 30;

fn on_base(more: Value) -> Value {
    let mut arguments = more;
    arguments["workspace_id"] = json!(BASE);
    arguments
}

/// The file in the guest has one of these sizes, and soon no other file is beside it.
fn whole(stage: &Stage, answered: bool, old: u64, new: u64) {
    eventually("nothing is beside it", PATIENCE, || stage.sh(BASE, "ls -A /root/files") == "text");
    let size: u64 = stage.sh(BASE, "stat -c %s /root/files/text").parse().expect("a size");
    assert!(size == new || size == old && !answered, "{size}");
}

fn write_old(stage: &Stage) {
    stage.sh(BASE, "rm -rf /root/files && mkdir /root/files && printf old > /root/files/text");
}

/// Waits until all of it has arrived, or `none` of it, and then removes it.
fn arrived(stage: &Stage, answered: bool, look: &str, expected: &str) {
    eventually("all of it or nothing", PATIENCE, || {
        let found = stage.sh(BASE, look);
        found == expected || found == "none" && !answered
    });
    stage.sh(BASE, "rm -rf /root/files && mkdir /root/files");
}

fn fill_transfers(stage: &Stage) {
    stage.sh(BASE, "rm -rf /root/files && mkdir /root/files");
    let dir = stage.transfers();
    let _ = fs::remove_dir_all(dir.join("out"));
    let _ = fs::remove_file(dir.join("out.bin"));
    fs::create_dir_all(dir.join("in")).expect("a directory");
    fs::write(dir.join("in.bin"), vec![7; LARGE]).expect("written");
    for number in 0..MANY {
        fs::write(dir.join("in").join(number.to_string()), vec![7; 50_000]).expect("written");
    }
}

fn fill_guest(stage: &Stage) {
    fill_transfers(stage);
    let fill = format!(
        "mkdir /root/files/out; cd /root/files/out; head -c {LARGE} /dev/zero > ../out.bin; \
         for n in $(seq {MANY}); do head -c 50000 /dev/zero > $n; done"
    );
    stage.sh(BASE, &fill);
}

fn transfer(direction: &str, host_path: &str, guest_path: &str) -> Value {
    on_base(json!({"direction": direction, "host_path": host_path, "guest_path": guest_path}))
}

pub(crate) fn deeds() -> Vec<Operation> {
    let large = "x".repeat(LARGE);
    vec![
        operation("file_write", "file_write", on_base(json!({"path": "/root/files/text", "content": large})))
            .before(write_old)
            .after(|stage, answered| whole(stage, answered, 3, LARGE as u64)),
        operation(
            "file_edit",
            "file_edit",
            on_base(json!({"path": "/root/files/text", "old_string": "old", "new_string": "newer"})),
        )
        .before(write_old)
        .after(|stage, answered| whole(stage, answered, 3, 5)),
        operation("file_read", "file_read", on_base(json!({"path": "/root/files/text"}))).before(write_old),
        operation("file_list", "file_list", on_base(json!({"path": "/usr/bin"}))),
        operation("upload", "file_transfer", transfer("upload", "in.bin", "/root/files/in.bin"))
            .slow(60)
            .before(fill_transfers)
            .after(|stage, answered| {
                let look = "cd /root/files; if [ -e in.bin ]; then wc -c < in.bin; else echo none; fi; \
                            ls -A | grep -v '^in.bin$' || true";
                arrived(stage, answered, look, &LARGE.to_string());
            }),
        operation("upload of a directory", "file_transfer", transfer("upload", "in", "/root/files/in"))
            .slow(60)
            .before(fill_transfers)
            .after(|stage, answered| {
                let look = "cd /root/files; if [ -e in ]; then cat in/* | wc -c; else echo none; fi; \
                            ls -A | grep -v '^in$' || true";
                arrived(stage, answered, look, &(MANY * 50_000).to_string());
            }),
        operation("download", "file_transfer", transfer("download", "out.bin", "/root/files/out.bin"))
            .slow(60)
            .before(fill_guest)
            .after(|stage, answered| {
                let found = fs::metadata(stage.transfers().join("out.bin")).ok().map(|file| file.len());
                assert!(found == Some(LARGE as u64) || found.is_none() && !answered, "{found:?}");
            }),
        operation("download of a directory", "file_transfer", transfer("download", "out", "/root/files/out"))
            .slow(60)
            .before(fill_guest)
            .after(|stage, answered| {
                let found = fs::read_dir(stage.transfers().join("out")).ok().map(Iterator::count);
                assert!(found == Some(MANY) || found.is_none() && !answered, "{found:?}");
            }),
    ]
}

fn reset(stage: &Stage) {
    stage.sh(BASE, "cd /workspace && git reset -q --hard start && git clean -fdq");
}

/// The working tree is clean, and its last commit is the old or the new one.
fn committed(stage: &Stage, answered: bool, new: &str) {
    let dirty = stage.client.tool("git_status", on_base(json!({}))).json()["dirty"].clone();
    let subject = stage.sh(BASE, "git -C /workspace log -1 --format=%s");
    assert!(subject == new || subject == "commit 3" && !answered, "{subject}");
    assert!(dirty == false || !answered, "{dirty}");
    // A commit must work, whatever happened before.
    let commit = "cd /workspace && touch last && git add last && git commit -q -m last";
    stage.sh(BASE, commit);
}

fn change(stage: &Stage) {
    reset(stage);
    stage.sh(BASE, "cd /workspace && for n in $(seq 60); do echo $n > file-$n; done");
}

pub(crate) fn repositories() -> Vec<Operation> {
    vec![
        operation(
            "git_clone",
            "git_clone",
            on_base(json!({"url": "http://git.test/project.git", "path": "/root/files/clone"})),
        )
        .slow(400)
        .before(write_old)
        .after(|stage, answered| {
            let look =
                "cd /root/files; if [ -e clone ]; then cat clone/README 2>/dev/null || :; else echo none; fi";
            arrived(stage, answered, look, "hello from the repository");
        }),
        operation("git_status", "git_status", on_base(json!({})))
            .before(change)
            .after(|stage, _| reset(stage)),
        operation("git_diff", "git_diff", on_base(json!({}))).before(change).after(|stage, _| reset(stage)),
        operation("git_commit", "git_commit", on_base(json!({"message": "new"})))
            .slow(200)
            .before(change)
            .after(|stage, answered| {
                // The daemon removes the lock of a git that it killed.
                stage.all_is_well();
                committed(stage, answered, "new");
                reset(stage);
            }),
        operation("git_push", "git_push", on_base(json!({})))
            .slow(400)
            .before(|stage| {
                reset(stage);
                let begin = "cd /workspace && git push -q -f origin start:main && \
                             git commit -q --allow-empty -m pushed";
                stage.sh(BASE, begin);
            })
            .after(|stage, answered| {
                let there = stage.internet.git("project.git", &["log", "-1", "--format=%s", "main"]);
                assert!(there == "pushed" || there == "commit 3" && !answered, "{there}");
                stage.client.tool("git_push", on_base(json!({})));
                assert_eq!(
                    stage.internet.git("project.git", &["log", "-1", "--format=%s", "main"]),
                    "pushed"
                );
                reset(stage);
            }),
        operation(
            "workspace_merge",
            "workspace_merge",
            json!({"source_workspaces": [OTHER], "target_workspace": BASE, "strategy": "sequential"}),
        )
        .slow(900)
        .before(reset)
        .after(|stage, answered| {
            stage.all_is_well();
            committed(stage, answered, "more");
            reset(stage);
        }),
    ]
}

const NOTE: &str = "a.md";

fn note(stage: &Stage, path: &str) -> Option<String> {
    fs::read_to_string(stage.notes.path().join(path)).ok()
}

fn write_notes(stage: &Stage) {
    let _ = fs::remove_file(stage.notes.path().join("b.md"));
    fs::write(stage.notes.path().join(NOTE), "old\n".repeat(1000)).expect("written");
}

/// The note has its old or its new text.
fn is_whole(stage: &Stage, answered: bool, new: &str) {
    let (now, old) = (note(stage, NOTE).unwrap_or_default(), "old\n".repeat(1000));
    assert!(now == new || now == old && !answered, "{} bytes", now.len());
}

pub(crate) fn notes() -> Vec<Operation> {
    let of_note = |more: Value| {
        let mut arguments = more;
        arguments["path"] = json!(NOTE);
        arguments
    };
    let large = "new\n".repeat(500_000);
    vec![
        operation("vault write", "vault", of_note(json!({"action": "write", "content": large})))
            .before(write_notes)
            .after(|stage, answered| is_whole(stage, answered, &"new\n".repeat(500_000))),
        operation(
            "vault append",
            "vault",
            of_note(json!({"action": "write", "content": "new\n", "mode": "append"})),
        )
        .before(write_notes)
        .after(|stage, answered| is_whole(stage, answered, &format!("{}new\n", "old\n".repeat(1000)))),
        operation(
            "vault replace",
            "vault",
            of_note(json!({"action": "replace", "old_string": "old", "new_string": "new"})),
        )
        .before(write_notes)
        .after(|stage, answered| is_whole(stage, answered, &"new\n".repeat(1000))),
        operation("vault move", "vault", of_note(json!({"action": "move", "new_path": "b.md"})))
            .before(write_notes)
            .after(|stage, answered| {
                let (from, to) = (note(stage, NOTE), note(stage, "b.md"));
                assert!(from.is_some() != to.is_some() && (to.is_some() || !answered), "one of both");
                assert_eq!(from.or(to).map(|text| text.len()), Some(4000));
            }),
        operation("vault delete", "vault", of_note(json!({"action": "delete", "confirm": true})))
            .before(write_notes)
            .after(|stage, answered| assert!(note(stage, NOTE).is_none() || !answered)),
        operation("vault search", "vault", json!({"action": "search", "query": "old"})).before(write_notes),
    ]
}
