//! The operations of the git tools against real repositories.

use std::time::Duration;

use agentiso_git::calls::{Author, Before, CloneRepo, Commit, Committed, Diff, Push, status};
use agentiso_git::{BranchName, GitUrl, Ran, Remote, RepoFile, Status, Trouble};

use crate::lab::Lab;

fn seen(lab: &Lab) -> Status {
    let ran = lab.sh(&status(&lab.path()));
    assert!(ran.succeeded(), "{}", ran.words(500));
    Status::parse(&ran.stdout).unwrap()
}

fn committed(lab: &Lab, message: &str, add_all: bool) -> (Committed, Ran) {
    let commit = Commit { path: lab.path(), message: message.to_owned(), add_all, author: None };
    let ran = lab.sh(&commit.script());
    assert!(ran.succeeded(), "{}", ran.words(500));
    (Commit::read(&ran), ran)
}

fn diffed(lab: &Lab, staged: bool, stat: bool, file: Option<&str>) -> String {
    let file = file.map(|file| RepoFile::parse(file).unwrap());
    let diff = Diff { path: lab.path(), staged, stat, file, max_bytes: 65_536 };
    let ran = lab.sh(&diff.script());
    assert!(ran.succeeded(), "{}", ran.words(500));
    diff.read(&ran).text
}

fn push(lab: &Lab) -> Push {
    let timeout = Duration::from_secs(60);
    let path = lab.path();
    Push { path, remote: Remote::default(), branch: None, force: false, set_upstream: true, timeout }
}

#[test]
fn status_separates_staged_modified_and_untracked() {
    let lab = Lab::fresh();
    lab.change("a b.txt", "1\n");
    lab.change("it's \"q\"\n.txt", "1\n");
    assert!(!seen(&lab).is_dirty());
    lab.write("a b.txt", "2\n");
    lab.git(&["add", "a b.txt"]);
    lab.write("a b.txt", "3\n");
    lab.git(&["mv", "README", "new name"]);
    lab.write("it's \"q\"\n.txt", "2\n");
    lab.write("dir/new", "x");
    let status = seen(&lab);
    assert_eq!(status.branch, "main");
    assert_eq!(status.staged, ["a b.txt", "new name"]);
    assert_eq!(status.modified, ["a b.txt", "it's \"q\"\n.txt"]);
    assert_eq!(status.untracked, ["dir/"]);
    lab.git(&["reset", "-q", "--hard"]);
    lab.git(&["checkout", "-q", "-b", "side", "HEAD~1"]);
    lab.change("it's \"q\"\n.txt", "other\n");
    lab.git_fails(&["merge", "main"]);
    assert_eq!(seen(&lab).conflicted, ["it's \"q\"\n.txt"]);
}

#[test]
fn missing_repository_differs_from_missing_directory() {
    let lab = Lab::empty();
    let ran = lab.sh(&status(&lab.path()));
    assert_eq!(Trouble::of(&ran), Trouble::NotARepository);
    let missing = agentiso_core::paths::GuestPath::parse("/nonexistent/x").unwrap();
    assert_eq!(Trouble::of(&lab.sh(&status(&missing))), Trouble::NoDirectory);
    let diff = Diff { path: lab.path(), staged: false, stat: false, file: None, max_bytes: 10 };
    assert_eq!(Trouble::of(&lab.sh(&diff.script())), Trouble::NotARepository);
}

#[test]
fn commit_takes_everything_or_staged_files() {
    let lab = Lab::empty();
    lab.git(&["init", "-q", "-b", "main"]);
    lab.write("new", "1\n");
    let (made, _) = committed(&lab, "it's $(touch /tmp/x) `y`\n\n#1", true);
    let Committed::Made { commit, short, branch, summary } = made else { panic!("nothing was committed") };
    assert_eq!(
        (lab.git(&["rev-parse", "HEAD"]), &commit[..7], branch.as_deref()),
        (commit.clone(), &*short, Some("main"))
    );
    assert!(summary.contains("1 file changed"), "{summary}");
    assert_eq!(lab.git(&["log", "-1", "--format=%B"]).trim(), "it's $(touch /tmp/x) `y`\n\n#1");
    assert_eq!(lab.git(&["log", "-1", "--format=%an <%ae> %cn"]), "agentiso <agentiso@localhost> agentiso");
    assert!(!seen(&lab).is_dirty());
    assert_eq!(committed(&lab, "again", true).0, Committed::Nothing);
    lab.write("staged", "1\n");
    lab.git(&["add", "staged"]);
    lab.write("not staged", "1\n");
    assert!(matches!(committed(&lab, "some", false).0, Committed::Made { .. }));
    assert_eq!(seen(&lab).untracked, ["not staged"]);
    assert_eq!(committed(&lab, "none", false).0, Committed::Nothing);
    let author = Author::new("Bo O'Neil", "bo@example.com").ok();
    let commit = Commit { path: lab.path(), message: "by Bo".to_owned(), add_all: true, author };
    assert!(lab.sh(&commit.script()).succeeded());
    assert_eq!(lab.git(&["log", "-1", "--format=%an %cn"]), "Bo O'Neil Bo O'Neil");
}

#[test]
fn diff_shows_worktree_index_or_statistics() {
    let lab = Lab::fresh();
    lab.change("a*.txt", "old\n");
    lab.change("ab.txt", "old\n");
    lab.write("untracked", "x\n");
    assert_eq!(diffed(&lab, false, false, None), "", "an untracked file alone");
    lab.write("a*.txt", "token ghp_abcdef123\n");
    lab.write("ab.txt", "new\n");
    let all = diffed(&lab, false, false, None);
    assert!(all.contains("+new") && all.contains("+token ***") && !all.contains("abcdef"), "{all}");
    let one = diffed(&lab, false, false, Some("a*.txt"));
    assert!(one.contains("+token") && !one.contains("+new"), "a name is no pattern: {one}");
    assert_eq!(diffed(&lab, true, false, None), "");
    lab.git(&["add", "ab.txt"]);
    assert!(diffed(&lab, true, false, None).contains("+new"));
    assert!(diffed(&lab, true, true, None).contains("1 file changed"));
}

#[test]
fn push_succeeds_or_names_the_reason() {
    let (lab, remote) = (Lab::fresh(), Lab::empty());
    let ran = lab.sh(&push(&lab).script());
    assert_eq!(Trouble::of(&ran), Trouble::NoRemote, "{}", ran.words(500));
    remote.git(&["init", "-q", "--bare", "-b", "main", "."]);
    lab.git(&["remote", "add", "origin", remote.tree().to_str().unwrap()]);
    let ran = lab.sh(&push(&lab).script());
    assert!(ran.succeeded(), "{}", ran.words(500));
    let pushed = Push::read(&ran);
    assert!(pushed.branch == "main" && pushed.output.contains("main -> main"), "{pushed:?}");
    assert_eq!(seen(&lab).ahead, 0);
    lab.change("x", "1\n");
    assert_eq!(seen(&lab).ahead, 1);
    // Another clone has pushed first.
    let other = Lab::empty();
    other.git(&["clone", "-q", remote.tree().to_str().unwrap(), "."]);
    other.change("y", "1\n");
    other.git(&["push", "-q"]);
    let ran = lab.sh(&push(&lab).script());
    assert_eq!(Trouble::of(&ran), Trouble::NonFastForward, "{}", ran.words(500));
    assert!(lab.sh(&Push { force: true, ..push(&lab) }.script()).succeeded());
    assert_eq!(remote.git(&["rev-parse", "main"]), lab.git(&["rev-parse", "main"]));
    let nope = Push { branch: BranchName::parse("nope").ok(), ..push(&lab) };
    assert_eq!(Trouble::of(&lab.sh(&nope.script())), Trouble::NoSuchBranch);
    lab.git(&["checkout", "-q", "--detach"]);
    assert_eq!(Trouble::of(&lab.sh(&push(&lab).script())), Trouble::NoBranch);
}

#[test]
fn clone_checks_the_path_and_can_be_undone() {
    let lab = Lab::empty();
    let url = GitUrl::parse("http://127.0.0.1:1/x").unwrap();
    let mut clone = CloneRepo { url, path: lab.path(), branch: None, depth: Some(1) };
    assert_eq!(CloneRepo::before(&lab.sh(&clone.look())), Some(Before::Empty));
    let ran = lab.sh(&clone.script());
    assert_eq!(Trouble::of(&ran), Trouble::Unreachable, "{}", ran.words(500));
    assert!(lab.tree().is_dir(), "what was there stays");
    lab.write("half/.git/x", "1");
    lab.write(".hidden", "1");
    assert_eq!(Trouble::of(&lab.sh(&clone.look())), Trouble::NotEmpty);
    assert!(lab.sh(&clone.undo(Before::Empty)).succeeded());
    assert_eq!(std::fs::read_dir(lab.tree()).unwrap().count(), 0);
    lab.write("again", "1");
    assert!(lab.sh(&clone.undo(Before::Absent)).succeeded());
    assert!(!lab.tree().exists());
    std::fs::create_dir(lab.tree()).unwrap();
    clone.path = agentiso_core::paths::GuestPath::parse(&format!("{}/new/deep", clone.path)).unwrap();
    assert_eq!(CloneRepo::before(&lab.sh(&clone.look())), Some(Before::Absent));
    lab.write("new/deep", "a file");
    assert_eq!(Trouble::of(&lab.sh(&clone.look())), Trouble::NotEmpty);
}

#[test]
fn missing_git_is_reported() {
    let lab = Lab::fresh();
    let line = status(&lab.path()).line().replace("command -v git", "command -v no-such-git");
    let output = std::process::Command::new("sh").arg("-c").arg(line).output().unwrap();
    let ran = Ran { code: output.status.code(), stderr: output.stderr, ..Ran::default() };
    assert_eq!(Trouble::of(&ran), Trouble::NoGit);
}

#[test]
fn stale_commit_lock_is_removed_after_git_ends() {
    let lab = Lab::fresh();
    let commit = Commit { path: lab.path(), message: "x".to_owned(), add_all: true, author: None };
    assert!(lab.sh(&commit.unlock()).succeeded(), "where there is none");
    lab.write(".git/index.lock", "");
    lab.write("new", "1");
    assert_eq!(Trouble::of(&lab.sh(&commit.script())), Trouble::Locked);
    // A git process that waits for its input keeps running.
    let mut running = lab.start_git(&["cat-file", "--batch"]);
    assert!(lab.sh(&commit.unlock()).succeeded());
    assert!(lab.has(".git/index.lock"), "it may belong to the git that runs");
    drop(running.stdin.take());
    running.wait().unwrap();
    assert!(lab.sh(&commit.unlock()).succeeded());
    assert!(!lab.has(".git/index.lock") && lab.sh(&commit.script()).succeeded());
}

#[test]
fn all_locks_of_a_killed_git_are_removed() {
    let lab = Lab::fresh();
    let commit = Commit { path: lab.path(), message: "x".to_owned(), add_all: true, author: None };
    lab.write("new", "1");
    assert!(lab.sh(&commit.script()).succeeded());
    let locks =
        ["index.lock", "HEAD.lock", "config.lock", "refs/heads/main.lock", "refs/remotes/origin/main.lock"];
    for lock in locks {
        let lock = format!(".git/{lock}");
        lab.write(&lock, "");
        assert!(lab.sh(&commit.unlock()).succeeded());
        assert!(!lab.has(&lock), "{lock}");
    }
    lab.write("locks/yours.lock", "1");
    assert!(lab.sh(&commit.unlock()).succeeded());
    assert!(lab.has("locks/yours.lock"), "files of the working tree stay");
    assert!(lab.start_git(&["init", "--quiet", "--bare", "bare"]).wait().unwrap().success());
    lab.write("bare/refs/heads/main.lock", "");
    let path = agentiso_core::paths::GuestPath::parse(&format!("{}/bare", lab.path())).unwrap();
    assert!(lab.sh(&Commit { path, ..commit.clone() }.unlock()).succeeded());
    assert!(!lab.has("bare/refs/heads/main.lock"), "a bare repository has locks too");
    assert!(lab.sh(&commit.script()).succeeded());
}
