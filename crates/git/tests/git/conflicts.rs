//! Sources with conflicts: the target is unchanged, and the other sources are merged.

use agentiso_git::merge::{Outcome, Strategy};

use crate::lab::{Lab, failure, merged, try_merge};

fn base() -> Lab {
    let lab = Lab::fresh();
    lab.change("a.txt", "1\n2\n3\n");
    lab.change("b.bin", [0u8, 1, 2]);
    lab
}

/// Merges a conflicting source into a target with a stash, untracked and ignored files, and another branch.
async fn does_not_fit(prepare: impl Fn(&Lab, &Lab), expected: &[&str]) {
    for strategy in Strategy::ALL {
        let target = base();
        target.change(".gitignore", "ignored\n");
        let source = target.fork();
        target.write("a.txt", "stashed\n");
        target.git(&["stash", "-q"]);
        target.git(&["branch", "other"]);
        prepare(&target, &source);
        target.write("untracked", "u\n");
        let before = target.fingerprint();
        let outcomes = try_merge(strategy, &target, &[&source]).await.unwrap();
        let error = failure(&outcomes[0]);
        assert!(expected.iter().all(|part| error.contains(part)), "{strategy:?}: {error}");
        assert_eq!(target.fingerprint(), before, "{strategy:?}");
    }
}

#[tokio::test]
async fn conflicting_lines_do_not_merge() {
    let prepare = |target: &Lab, source: &Lab| {
        source.change("fine.txt", "x\n");
        source.change("a.txt", "1\nsource\n3\n");
        target.change("a.txt", "1\ntarget\n3\n");
    };
    does_not_fit(prepare, &["change a.txt", "does not fit", "a.txt"]).await;
}

#[tokio::test]
async fn conflicting_binary_files_do_not_merge() {
    let prepare = |target: &Lab, source: &Lab| {
        source.change("b.bin", [0u8, 9]);
        target.change("b.bin", [0u8, 8]);
    };
    does_not_fit(prepare, &["b.bin"]).await;
}

#[tokio::test]
async fn deleted_and_changed_file_does_not_merge() {
    let prepare = |target: &Lab, source: &Lab| {
        source.git(&["rm", "-q", "a.txt"]);
        source.commit("delete it");
        target.change("a.txt", "1\ntarget\n3\n");
    };
    does_not_fit(prepare, &["delete it", "a.txt"]).await;
}

#[tokio::test]
async fn uncommitted_file_is_never_overwritten() {
    for name in ["untracked", "ignored"] {
        let prepare = |target: &Lab, source: &Lab| {
            source.write(name, "from the source\n");
            source.git(&["add", "--force", name]);
            source.git(&["commit", "-q", "-m", "add it"]);
            target.write(name, "precious\n");
        };
        does_not_fit(prepare, &["in the way", name]).await;
    }
}

#[tokio::test]
async fn source_without_commits_fails() {
    for strategy in Strategy::ALL {
        let (target, none, unborn) = (base(), Lab::empty(), Lab::empty());
        unborn.git(&["init", "-q"]);
        let outcomes = try_merge(strategy, &target, &[&none, &unborn]).await.unwrap();
        assert!(failure(&outcomes[0]).contains("not a git repository"), "{outcomes:?}");
        assert!(failure(&outcomes[1]).contains("no commit"), "{outcomes:?}");
    }
}

#[tokio::test]
async fn conflicting_source_does_not_block_others() {
    for strategy in Strategy::ALL {
        let target = base();
        let [one, two, three] = [target.fork(), target.fork(), target.fork()];
        one.change("a.txt", "1\none\n3\n");
        two.change("fine-at-first.txt", "x\n");
        two.change("a.txt", "1\ntwo\n3\n");
        three.change("three.txt", "3\n");
        let outcomes = try_merge(strategy, &target, &[&one, &two, &three]).await.unwrap();
        assert_eq!(merged(&[outcomes[0].clone(), outcomes[2].clone()]), [1, 1], "{strategy:?}");
        assert!(matches!(&outcomes[1], Outcome::Failed { error } if error.contains("a.txt")), "{outcomes:?}");
        assert_eq!(target.read("a.txt"), "1\none\n3\n");
        assert!(target.has("three.txt") && !target.has("fine-at-first.txt"), "{strategy:?}");
    }
}
