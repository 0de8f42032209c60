//! Histories that merge without conflicts: shared, unrelated, with merges, renames, deletions, binary files.

use agentiso_git::merge::{Outcome, Strategy};

use crate::lab::{Lab, merged, try_merge};

/// A repository of several commits, as a prepared workspace has it.
fn golden() -> Lab {
    let lab = Lab::fresh();
    lab.change("src/a.txt", "a1\na2\na3\na4\na5\na6\na7\na8\n");
    lab.change("src/b.txt", "b\n");
    lab
}

/// The last commit that came from a source.
fn last(target: &Lab, strategy: Strategy, format: &str) -> String {
    let revision = match strategy {
        Strategy::BranchPerSource => "HEAD^2",
        Strategy::Sequential | Strategy::CherryPick => "HEAD",
    };
    target.git(&["log", "-1", &format!("--format={format}"), revision])
}

#[tokio::test]
async fn forks_contribute_only_their_own_commits() {
    for strategy in Strategy::ALL {
        let target = golden();
        let (one, two) = (target.fork(), target.fork());
        one.change("one.txt", "1\n");
        one.change("one.txt", "1\n2\n");
        two.change("src/a.txt", "a1\na2\na3\na4\na5\na6\na7\nchanged\n");
        target.change("own.txt", "x\n");
        let outcomes = try_merge(strategy, &target, &[&one, &two]).await.unwrap();
        assert_eq!(merged(&outcomes), [2, 1], "{strategy:?}");
        assert_eq!(target.read("one.txt"), "1\n2\n");
        assert!(target.read("src/a.txt").ends_with("changed\n") && target.has("own.txt"));
        assert_eq!(target.git(&["status", "--porcelain"]), "");
        assert_eq!(target.git(&["symbolic-ref", "--short", "HEAD"]), "main");
        assert_eq!(target.git(&["branch", "--list", "merge/*"]), "");
        let merges = target.git(&["log", "--merges", "--format=%s"]);
        match strategy {
            Strategy::BranchPerSource => {
                assert_eq!(merges, "Merge workspace source-2\nMerge workspace source-1")
            }
            Strategy::Sequential | Strategy::CherryPick => {
                assert_eq!(merges, "");
                let expected =
                    ["own.txt", "one.txt", "one.txt", "src/a.txt"].map(|name| format!("change {name}"));
                assert_eq!(target.subjects()[3..], expected);
            }
        }
        let authors = last(&target, strategy, "%an %cn");
        assert_eq!(authors, "Ann agentiso", "the author stays, a committer is supplied");
    }
}

#[tokio::test]
async fn unrelated_repositories_merge_into_a_third() {
    for strategy in Strategy::ALL {
        let (target, one, two) = (Lab::fresh(), Lab::fresh(), Lab::fresh());
        one.change("one.txt", "1\n");
        two.change("two.txt", "2\n");
        let outcomes = try_merge(strategy, &target, &[&one, &two]).await.unwrap();
        assert_eq!(merged(&outcomes), [1, 1], "{strategy:?}");
        assert!(target.has("one.txt") && target.has("two.txt"));
    }
}

#[tokio::test]
async fn source_without_new_commits_counts_as_merged() {
    for strategy in Strategy::ALL {
        let target = golden();
        let (same, behind, root) = (target.fork(), target.fork(), Lab::fresh());
        target.change("own.txt", "x\n");
        behind.write("forgotten.txt", "never committed\n");
        let before = target.fingerprint();
        let outcomes = try_merge(strategy, &target, &[&same, &behind, &root]).await.unwrap();
        assert_eq!(merged(&outcomes), [0, 0, 0], "{strategy:?}");
        assert_eq!(target.fingerprint(), before);
        let Outcome::Merged { note: Some(note), .. } = &outcomes[1] else { panic!("{outcomes:?}") };
        assert!(note.contains("not committed"), "{note}");
    }
}

#[tokio::test]
async fn shared_commit_is_taken_once() {
    for strategy in Strategy::ALL {
        let target = golden();
        let one = target.fork();
        one.change("shared.txt", "s\n");
        let two = one.fork();
        one.change("one.txt", "1\n");
        two.change("two.txt", "2\n");
        let outcomes = try_merge(strategy, &target, &[&one, &two]).await.unwrap();
        assert_eq!(merged(&outcomes), [2, 1], "{strategy:?}");
        assert!(["shared.txt", "one.txt", "two.txt"].iter().all(|name| target.has(name)));
        // A second merge finds everything there already.
        let again = try_merge(strategy, &target, &[&one, &two]).await.unwrap();
        assert_eq!(merged(&again), [0, 0], "{strategy:?}");
    }
}

#[tokio::test]
async fn merge_preserves_binaries_renames_modes_and_links() {
    for strategy in Strategy::ALL {
        let target = golden();
        let source = target.fork();
        let blob: Vec<u8> = (0..200_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        source.change("image.bin", &blob);
        source.git(&["mv", "src/a.txt", "src/renamed ü.txt"]);
        source.commit("rename");
        source.git(&["rm", "-q", "src/b.txt"]);
        source.commit("delete");
        source.change("crlf.txt", "one\r\ntwo\r\n");
        source.write("run.sh", "#!/bin/sh\n");
        source.git(&["add", "run.sh"]);
        source.git(&["update-index", "--chmod=+x", "run.sh"]);
        source.git(&["commit", "-q", "-m", "mode"]);
        source.git(&["checkout", "-q", "-f", "HEAD"]);
        std::os::unix::fs::symlink("README", source.tree().join("link")).unwrap();
        source.commit("link");
        // The target changes too: its lines are kept in the file that the source renames.
        target.change("src/a.txt", "first\na1\na2\na3\na4\na5\na6\na7\na8\n");
        let outcomes = try_merge(strategy, &target, &[&source]).await.unwrap();
        assert_eq!(merged(&outcomes), [6], "{strategy:?}");
        assert_eq!(std::fs::read(target.tree().join("image.bin")).unwrap(), blob);
        assert!(target.read("src/renamed ü.txt").starts_with("first\na1\n"), "{strategy:?}");
        assert!(!target.has("src/a.txt") && !target.has("src/b.txt"));
        assert_eq!(target.read("crlf.txt"), "one\r\ntwo\r\n");
        assert_eq!(target.read("link"), "hello\n");
        let tree = |lab: &Lab| lab.git(&["ls-tree", "-r", "HEAD", "run.sh", "link", "image.bin", "crlf.txt"]);
        assert_eq!(tree(&target), tree(&source));
    }
}

#[tokio::test]
async fn merge_commits_contribute_their_resolution() {
    for strategy in Strategy::ALL {
        let target = golden();
        let source = target.fork();
        source.git(&["checkout", "-q", "-b", "side"]);
        source.change("src/b.txt", "side\n");
        source.git(&["checkout", "-q", "main"]);
        source.change("src/b.txt", "main\n");
        source.git_fails(&["merge", "-q", "side"]);
        source.change("src/b.txt", "both\n");
        source.change("after.txt", "x\n");
        target.change("own.txt", "x\n");
        let outcomes = try_merge(strategy, &target, &[&source]).await.unwrap();
        assert_eq!(merged(&outcomes), [3], "{strategy:?}: along the first parents");
        assert_eq!(target.read("src/b.txt"), "both\n");
        assert!(target.has("after.txt") && target.has("own.txt"));
    }
}

#[tokio::test]
async fn commits_merged_from_the_target_are_skipped() {
    for strategy in Strategy::ALL {
        let target = golden();
        let source = target.fork();
        source.change("one.txt", "1\n");
        target.change("src/b.txt", "newer\n");
        source.git(&["fetch", "-q", target.tree().to_str().unwrap(), "main"]);
        source.git(&["merge", "-q", "-m", "catch up", "FETCH_HEAD"]);
        source.change("two.txt", "2\n");
        let outcomes = try_merge(strategy, &target, &[&source]).await.unwrap();
        assert_eq!(merged(&outcomes), [2], "{strategy:?}");
        assert!(target.has("one.txt") && target.has("two.txt"));
        assert_eq!(target.read("src/b.txt"), "newer\n");
    }
}

#[tokio::test]
async fn messages_arrive_word_for_word() {
    for strategy in Strategy::ALL {
        let target = golden();
        let source = target.fork();
        for (number, message) in [
            "[tag] subject in brackets\n\nbody",
            "rules\n\nabove\n---\nbelow\n\ndiff --git a/x b/x\nFrom here on",
            "a subject that is longer than any line of a mail header would be allowed to be without being folded: ü",
        ]
        .iter()
        .enumerate()
        {
            source.write("file", format!("{number}\n"));
            source.commit(message);
            let outcomes = try_merge(strategy, &target, &[&source]).await.unwrap();
            assert_eq!(merged(&outcomes), [1], "{strategy:?}");
            let said = last(&target, strategy, "%B");
            assert_eq!(said.trim(), *message, "{strategy:?}");
        }
    }
}

#[tokio::test]
async fn shallow_clone_merges_with_its_forks() {
    let origin = golden();
    let target = Lab::empty();
    let url = format!("file://{}", origin.tree().display());
    target.git(&["clone", "-q", "--depth", "1", &url, "."]);
    let source = target.fork();
    source.change("one.txt", "1\n");
    for strategy in Strategy::ALL {
        let target = target.fork();
        let outcomes = try_merge(strategy, &target, &[&source]).await.unwrap();
        assert_eq!(merged(&outcomes), [1], "{strategy:?}");
        assert!(target.has("one.txt"));
        target.git(&["fsck", "--no-dangling"]);
    }
}

#[tokio::test]
async fn git_configuration_does_not_affect_patches() {
    let target = golden();
    let config = "[user]\nname = Tess\nemail = tess@example.com\n[diff]\nnoprefix = true\nmnemonicPrefix = true\n\
                  [format]\nnumbered = true\nattach = true\nsignOff = true\n[commit]\ngpgSign = true\n\
                  [core]\nhooksPath = /nonexistent\nautocrlf = true\n[merge]\nff = false\n";
    std::fs::write(target.home().join(".gitconfig"), config).unwrap();
    for strategy in Strategy::ALL {
        let source = target.fork();
        source.change(&format!("{strategy:?}.txt"), "1\n");
        let outcomes = try_merge(strategy, &target, &[&source]).await.unwrap();
        assert_eq!(merged(&outcomes), [1], "{strategy:?}");
        assert_eq!(last(&target, strategy, "%an %cn"), "Ann Tess");
    }
}

#[tokio::test]
async fn detached_head_accepts_merges_without_branches() {
    let target = golden();
    target.git(&["checkout", "-q", "--detach"]);
    let source = target.fork();
    source.change("one.txt", "1\n");
    let refused = try_merge(Strategy::BranchPerSource, &target, &[&source]).await.unwrap_err();
    assert!(refused.to_string().contains("no branch"), "{refused}");
    let outcomes = try_merge(Strategy::Sequential, &target, &[&source]).await.unwrap();
    assert_eq!(merged(&outcomes), [1]);
    assert!(target.has("one.txt"));
}
