//! Targets that a merge refuses, and merges that are stopped.

use std::time::Duration;

use agentiso_git::merge::{Outcome, Strategy};
use tokio_util::sync::CancellationToken;

use crate::lab::{Lab, merge_until, try_merge};

fn pair() -> (Lab, Lab) {
    let target = Lab::fresh();
    target.change("a.txt", "1\n");
    let source = target.fork();
    source.change("one.txt", "1\n");
    (target, source)
}

/// Asserts that the merge is refused with this message and changes nothing.
async fn refused(target: &Lab, source: &Lab, expected: &str) {
    for strategy in Strategy::ALL {
        let before = target.git(&["status", "--porcelain=v2", "--branch"]);
        let error = try_merge(strategy, target, &[source]).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{strategy:?}: {error}");
        assert_eq!(target.git(&["status", "--porcelain=v2", "--branch"]), before);
    }
}

#[tokio::test]
async fn target_with_uncommitted_changes_is_refused() {
    let (target, source) = pair();
    target.write("a.txt", "changed\n");
    refused(&target, &source, "a.txt").await;
    target.git(&["add", "a.txt"]);
    refused(&target, &source, "uncommitted").await;
}

#[tokio::test]
async fn target_with_unfinished_merge_is_refused() {
    let (target, source) = pair();
    target.git(&["checkout", "-q", "-b", "side"]);
    target.change("side.txt", "x\n");
    target.git(&["checkout", "-q", "main"]);
    target.git(&["merge", "-q", "--no-commit", "--no-ff", "-s", "ours", "side"]);
    refused(&target, &source, "MERGE_HEAD").await;
}

#[tokio::test]
async fn target_without_commits_is_refused() {
    let (_, source) = pair();
    let unborn = Lab::empty();
    unborn.git(&["init", "-q", "-b", "main"]);
    refused(&unborn, &source, "no commit yet").await;
    let none = Lab::empty();
    for strategy in Strategy::ALL {
        let error = try_merge(strategy, &none, &[&source]).await.unwrap_err().to_string();
        assert!(error.contains("not a git repository"), "{error}");
    }
}

/// After a stop at any moment, the target is unchanged or has all commits of the source.
#[tokio::test]
async fn merge_can_be_stopped_at_any_moment() {
    for step in 0..12u64 {
        let (target, source) = pair();
        let before = target.fingerprint();
        let stop = CancellationToken::new();
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(step * 15)).await;
            stop.cancel();
        };
        let sources = [&source];
        let merging = merge_until(Strategy::Sequential, &target, &sources, &stop);
        let (outcomes, ()) = futures::join!(merging, cancel);
        match outcomes.as_deref() {
            Ok([Outcome::Merged { commits: 1, .. }]) => assert!(target.has("one.txt")),
            Ok([Outcome::Failed { .. }]) | Err(_) => assert_eq!(target.fingerprint(), before, "step {step}"),
            Ok(other) => panic!("{other:?}"),
        }
    }
}
