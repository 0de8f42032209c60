//! Random trees as file systems, compared with a model that is a map of paths.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::ext4_image::{diff, paths};
use crate::tools::{need, run};

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8>, written: u64 },
    Symlink(String),
}

/// Nodes by path; parents sort before their entries.
type Tree = BTreeMap<String, Node>;

fn node() -> impl Strategy<Value = Node> {
    let mode = || prop_oneof![Just(0o755), Just(0o700)];
    prop_oneof![
        2 => mode().prop_map(|mode| Node::Directory { mode }),
        4 => (mode(), proptest::collection::vec(0u8..2, 0..3), 0u64..2)
            .prop_map(|(mode, content, written)| Node::File { mode, content, written }),
        1 => "[xy]{1,2}".prop_map(Node::Symlink),
        1 => "z{70,71}".prop_map(Node::Symlink),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    proptest::collection::vec(("(/[abc]){1,4}", node()), 0..24).prop_map(|nodes| {
        let mut tree = Tree::new();
        for (path, node) in nodes {
            let parents: Vec<&str> = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]).collect();
            let is_directory = |node: &Node| matches!(node, Node::Directory { .. });
            if tree.contains_key(&path)
                || parents.iter().any(|&parent| tree.get(parent).is_some_and(|node| !is_directory(node)))
            {
                continue;
            }
            for parent in parents {
                tree.entry(parent.to_owned()).or_insert(Node::Directory { mode: 0o755 });
            }
            tree.insert(path, node);
        }
        tree
    })
}

fn write(tree: &Tree, root: &Path) {
    fs::create_dir(root).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    for (path, node) in tree {
        let path = root.join(&path[1..]);
        match node {
            Node::Directory { .. } => fs::create_dir(&path).unwrap(),
            Node::File { content, written, .. } => {
                fs::write(&path, content).unwrap();
                // Different content gets a different modification time, as a kernel would set it. The change time is
                // always the second in which this test writes the file.
                let kind = content.iter().fold(1, |kind, byte| kind * 2 + u64::from(*byte));
                let written =
                    SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000 + written * 100 + kind);
                File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
            }
            Node::Symlink(target) => symlink(target, &path).unwrap(),
        }
        if let Node::Directory { mode } | Node::File { mode, .. } = node {
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        }
    }
}

fn expected(old: &Tree, new: &Tree) -> Vec<String> {
    let missing = |of: &Tree, from: &Tree, mark: &str| -> Vec<String> {
        of.keys().filter(|path| !from.contains_key(*path)).map(|path| format!("{mark}{path}")).collect()
    };
    let modified = new.iter().filter(|(path, node)| old.get(*path).is_some_and(|before| before != *node));
    let modified = modified.map(|(path, _)| format!("~{path}")).collect();
    [missing(new, old, "+"), modified, missing(old, new, "-")].concat()
}

#[test]
fn tree_difference_matches_the_model() {
    need!("mke2fs");
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let checked = runner.run(&(tree(), tree()), |(old, new)| {
        let dir = tempfile::tempdir().unwrap();
        let image = |name: &str, tree: &Tree| {
            let (root, image) = (dir.path().join(name), dir.path().join(format!("{name}.img")));
            write(tree, &root);
            let (root, path) = (root.display().to_string(), image.display().to_string());
            run(
                "mke2fs",
                ["-q", "-t", "ext4", "-O", "^has_journal", "-d", root.as_str(), path.as_str(), "2M"],
            );
            image
        };
        let found = diff(&image("old", &old), &image("new", &new));
        prop_assert_eq!(paths(&found), expected(&old, &new));
        Ok(())
    });
    checked.unwrap();
}
