//! Tests of whole directories in both directions, and of listings of several levels.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use agentiso_agent::{AgentError, ErrorCode};
use agentiso_vm::ListOptions;

use crate::support::{TestAgent, eventually};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[tokio::test]
async fn directory_round_trips_through_the_guest() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (from, to, back) = (dir.path().join("from"), dir.path().join("to"), dir.path().join("back"));
    fs::create_dir_all(from.join("sub/deeper")).expect("made");
    fs::write(from.join("sub/large"), vec![42; 3_000_000]).expect("written");
    fs::write(from.join("sub/deeper/small"), "x").expect("written");

    let mut archive = Vec::new();
    let mut reader = agent.client.read_tree(text(&from)).await.expect("opened");
    while let Some(piece) = reader.next().await.expect("read") {
        archive.extend_from_slice(&piece);
    }
    assert_eq!(reader.skipped(), 0);
    fs::create_dir(&back).expect("made");
    let directory = fs::File::open(&back).expect("open");
    agentiso_tree::unpack(&archive[..], directory.as_fd(), 0o777, agentiso_tree::Links::Any)
        .expect("a valid archive");
    assert_eq!(fs::read(back.join("sub/large")).expect("read"), vec![42; 3_000_000]);

    let sent = agent.client.write_tree(text(&to), &archive[..]).await.expect("written");
    assert_eq!(sent, archive.len() as u64);
    assert_eq!(fs::read(to.join("sub/large")).expect("read"), vec![42; 3_000_000]);
    assert_eq!(fs::read(to.join("sub/deeper/small")).expect("read"), b"x");
    let error = agent.client.write_tree(text(&to), &archive[..]).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::NotEmpty), "{error}");
    for (path, code) in [("/none", ErrorCode::NotFound), ("/etc/passwd", ErrorCode::NotDirectory)] {
        let mut reader = agent.client.read_tree(path).await.expect("sent");
        assert_eq!(reader.next().await.expect_err("refused").code(), Some(code), "{path}");
    }
}

#[tokio::test]
async fn failed_tree_upload_leaves_nothing() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let target = dir.path().join("target");
    let garbage = vec![7; 500_000];
    let error = agent.client.write_tree(text(&target), &garbage[..]).await.expect_err("no archive");
    assert!(matches!(error, AgentError::Guest { .. }), "{error}");
    let endless = tokio::io::AsyncReadExt::chain(&[][..], tokio::io::repeat(0));
    drop(
        tokio::time::timeout(
            std::time::Duration::from_millis(200),
            agent.client.write_tree(text(&target), endless),
        )
        .await,
    );
    eventually("nothing is left", || fs::read_dir(dir.path()).expect("listed").count() == 0).await;
}

#[tokio::test]
async fn listing_honours_depth_and_pattern() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(dir.path().join("a/b")).expect("made");
    for file in ["one.rs", "a/two.rs", "a/b/three.rs", "a/b/four.txt"] {
        fs::write(dir.path().join(file), "").expect("written");
    }
    let names = async |depth, glob: &'static str| {
        let options = ListOptions { depth, glob: Some(glob.to_owned()) };
        let listing = agent.client.list_dir(text(dir.path()), &options).await.expect("listed");
        listing.entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    assert_eq!(names(1, "").await, ["a", "one.rs"]);
    assert_eq!(names(2, "").await, ["a", "a/b", "a/two.rs", "one.rs"]);
    assert_eq!(names(9, "*.rs").await, ["a/b/three.rs", "a/two.rs", "one.rs"]);
    assert_eq!(names(9, "a/**/*.txt").await, ["a/b/four.txt"]);
}
