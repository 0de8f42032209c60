//! Tests of reading, writing, editing and listing files.

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use agentiso_agent::{AgentError, ErrorCode, WriteOptions, limits};
use agentiso_vm::{EntryKind, ListOptions};
use rustix::fs::{Mode, mkfifoat};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::support::{SOON, TestAgent, eventually};

const MIB: usize = 1024 * 1024;

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 255) as u8).collect()
}

#[tokio::test]
async fn large_file_round_trips_through_the_guest() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("new/parents/file");
    let content = pattern(40 * MIB + 123);
    let options = WriteOptions { mode: Some(0o750), create_parents: true };
    let written = agent.client.write_file(bytes(&path), options, &content[..]).await.expect("written");
    assert_eq!(written, content.len() as u64);
    assert!(fs::read(&path).expect("read") == content);
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o750);
    let reader = agent.client.read_file(bytes(&path), 0, None).await.expect("opened");
    assert_eq!((reader.info().size, reader.info().mode), (written, 0o750));
    assert!(reader.collect(64 * MIB).await.expect("read") == content);
    assert_eq!(fs::read_dir(path.parent().expect("a parent")).expect("listed").count(), 1);
}

#[tokio::test]
async fn file_is_written_from_memory() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    for content in [vec![], pattern(1), pattern(3 * MIB)] {
        let path = dir.path().join("file");
        agent
            .client
            .write_bytes(bytes(&path), WriteOptions::default(), content.clone())
            .await
            .expect("written");
        assert!(fs::read(&path).expect("read") == content);
    }
}

#[tokio::test]
async fn file_slice_is_read() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::write(&path, b"0123456789").expect("written");
    for (offset, limit, expected) in [
        (0, Some(3), "012"),
        (4, Some(2), "45"),
        (8, Some(9), "89"),
        (10, None, ""),
        (u64::MAX, None, ""),
        (3, Some(0), ""),
        (5, None, "56789"),
    ] {
        let reader = agent.client.read_file(bytes(&path), offset, limit).await.expect("opened");
        assert_eq!(reader.collect(100).await.expect("read"), expected, "{offset} {limit:?}");
    }
    let reader = agent.client.read_file(bytes(&path), 0, None).await.expect("opened");
    assert!(matches!(reader.collect(9).await, Err(AgentError::RequestTooLarge { .. })));
}

#[tokio::test]
async fn dropped_reader_frees_its_file_slot() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::File::create(&path).and_then(|file| file.set_len(1 << 30)).expect("a large file");
    for _ in 0..2 * limits::MAX_CONCURRENT_FILE_CALLS {
        // Threads of dropped readers end when they next try to send; this call waits for one of them.
        let mut reader = agent.client.read_file(bytes(&path), 0, None).await.expect("a turn");
        assert!(reader.next().await.expect("read").is_some());
    }
    agent.client.ping(vec![1].into()).await.expect("the connection works");
}

#[tokio::test]
async fn file_calls_beyond_the_queue_are_refused() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::File::create(&path).and_then(|file| file.set_len(1 << 30)).expect("a large file");
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..limits::MAX_CONCURRENT_FILE_CALLS + limits::MAX_WAITING_FILE_CALLS + 1 {
        let (client, path) = (agent.client.clone(), bytes(&path).to_vec());
        // The readers are never read, so those that run keep their slots.
        calls.spawn(async move { client.read_file(&path, 0, None).await });
    }
    let mut readers = Vec::new();
    let refused = loop {
        match calls.join_next().await.expect("one is too many").expect("no panic") {
            Ok(reader) => readers.push(reader),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), Some(ErrorCode::Busy));
    // All readers that run have sent as much as fits into their windows.
    while readers.len() < limits::MAX_CONCURRENT_FILE_CALLS {
        readers.push(calls.join_next().await.expect("it has its turn").expect("no panic").expect("a reader"));
    }
    for _ in 0..100 {
        agent.client.ping(vec![1].into()).await.expect("other calls find a stream and room");
    }
}

#[tokio::test]
async fn special_files_are_refused_at_once() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = dir.path().join("fifo");
    mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).expect("a pipe");
    let started = Instant::now();
    for (path, code) in [
        (fifo.as_path(), ErrorCode::NotRegular),
        (Path::new("/dev/zero"), ErrorCode::NotRegular),
        (dir.path(), ErrorCode::IsDirectory),
        (Path::new("/does/not/exist"), ErrorCode::NotFound),
        (Path::new("/etc/passwd/x"), ErrorCode::NotDirectory),
        (Path::new("relative"), ErrorCode::Invalid),
    ] {
        let error = agent.client.read_file(bytes(path), 0, None).await.expect_err("refused");
        assert_eq!(error.code(), Some(code), "{error}");
    }
    let options = WriteOptions::default();
    let error = agent.client.write_bytes(bytes(&fifo), options, "x").await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::NotRegular));
    let error = agent.client.write_bytes(bytes(dir.path()), options, "x").await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::IsDirectory));
    assert!(started.elapsed() < Duration::from_secs(5));
    let proc = agent.client.read_file("/proc/self/status", 0, None).await.expect("opened");
    assert!(proc.collect(MIB).await.expect("read").starts_with(b"Name:"));
}

#[tokio::test]
async fn non_utf8_names_are_kept() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let name = std::ffi::OsString::from_vec(b"a\xff\nb".to_vec());
    let path = dir.path().join(&name);
    agent.client.write_bytes(bytes(&path), WriteOptions::default(), "x").await.expect("written");
    assert_eq!(fs::read(&path).expect("read"), b"x");
    let listing = agent.client.list_dir(bytes(dir.path()), &ListOptions::default()).await.expect("listed");
    assert_eq!(listing.entries[0].name, "a\u{fffd}\nb");
}

#[tokio::test]
async fn cancelled_or_broken_upload_leaves_nothing_behind() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::write(&path, "old").expect("written");
    let names = || fs::read_dir(dir.path()).expect("listed").count();

    let (mut feed, source) = tokio::io::duplex(MIB);
    feed.write_all(&pattern(MIB / 2)).await.expect("fed");
    let upload = agent.client.write_file(bytes(&path), WriteOptions::default(), source);
    assert!(timeout(Duration::from_millis(300), upload).await.is_err(), "it waits for the rest");
    eventually("the temporary file is removed", || names() == 1).await;

    struct Broken;
    impl tokio::io::AsyncRead for Broken {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _cx: &mut std::task::Context<'_>,
            _buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Err(io::Error::other("broken")))
        }
    }
    let source = tokio::io::AsyncReadExt::chain(&b"some data"[..], Broken);
    let result = agent.client.write_file(bytes(&path), WriteOptions::default(), source).await;
    assert!(matches!(result, Err(AgentError::Source(_))), "{result:?}");
    eventually("the temporary file is removed", || names() == 1).await;
    assert_eq!(fs::read_to_string(&path).expect("read"), "old");
}

#[tokio::test]
async fn refused_large_upload_states_its_reason() {
    let agent = TestAgent::start().await;
    let content = pattern(8 * MIB);
    let options = WriteOptions { mode: None, create_parents: false };
    let path = "/does/not/exist/file";
    let error = agent.client.write_file(path, options, &content[..]).await.expect_err("refused");
    assert!(error.is_not_found(), "{error:?}");
    let error = agent.client.write_bytes(path, options, content).await.expect_err("refused");
    assert!(error.is_not_found(), "{error:?}");
}

#[tokio::test]
async fn directories_are_listed_sorted_with_kinds() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("b"), "12345").expect("written");
    fs::create_dir(dir.path().join("a")).expect("made");
    symlink("nowhere", dir.path().join(".c")).expect("linked");
    let listing = agent.client.list_dir(bytes(dir.path()), &ListOptions::default()).await.expect("listed");
    let found: Vec<_> = listing.entries.iter().map(|entry| (&entry.name[..], entry.kind)).collect();
    let expected = [(".c", EntryKind::Symlink), ("a", EntryKind::Dir), ("b", EntryKind::File)];
    assert_eq!((&found[..], listing.truncated), (&expected[..], false));
    assert_eq!(listing.entries[2].size, 5);
    assert!(
        agent.client.list_dir("/none", &ListOptions::default()).await.expect_err("refused").is_not_found()
    );
    let error = agent.client.list_dir("/etc/passwd", &ListOptions::default()).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::NotDirectory));
}

#[tokio::test]
async fn huge_directory_listing_is_cut() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let first = dir.path().join("x");
    fs::create_dir(&first).expect("made");
    for number in 0..limits::MAX_DIR_ENTRIES + 10 {
        symlink("x", first.join(number.to_string())).expect("linked");
    }
    let listing = agent.client.list_dir(bytes(&first), &ListOptions::default()).await.expect("listed");
    assert_eq!((listing.entries.len(), listing.truncated), (limits::MAX_DIR_ENTRIES as usize, true));
}

#[tokio::test]
async fn edits_replace_text_and_count_replacements() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::write(&path, "a b a").expect("written");
    assert_eq!(agent.client.edit_file(bytes(&path), "a", "xx", false).await.expect("edited"), 1);
    assert_eq!(agent.client.edit_file(bytes(&path), "a", "yy", true).await.expect("edited"), 1);
    assert_eq!(fs::read_to_string(&path).expect("read"), "xx b yy");
    let error = agent.client.edit_file(bytes(&path), "a", "", true).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::NoMatch));
    let error = agent.client.edit_file(bytes(&path), "", "x", true).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::Invalid));
}

#[tokio::test]
async fn stat_follows_links_only_if_asked() {
    let agent = TestAgent::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("link");
    symlink("/etc/passwd", &link).expect("linked");
    let kind = |info: agentiso_agent::FileInfo| info.kind;
    let client = &agent.client;
    assert_eq!(kind(client.stat(bytes(&link), false).await.expect("there")), EntryKind::Symlink);
    assert_eq!(kind(client.stat(bytes(&link), true).await.expect("there")), EntryKind::File);
    let reader =
        timeout(SOON, client.read_file(bytes(&link), 0, None)).await.expect("at once").expect("opened");
    assert!(!reader.collect(MIB).await.expect("read").is_empty());
}
