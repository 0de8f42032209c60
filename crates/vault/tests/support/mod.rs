//! A vault for one test.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};

use agentiso_vault::{FolderPath, NotePath, Settings, Vault, WriteMode};
use tempfile::TempDir;

pub(crate) struct TestVault {
    directory: TempDir,
    pub(crate) vault: Vault,
}

impl TestVault {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("vault");
        std::fs::create_dir(&path).expect("a vault");
        Self { vault: Vault::new(settings(&path)), directory }
    }

    /// Another vault object on the same directory, as a second daemon has.
    pub(crate) fn another(&self) -> Vault {
        Vault::new(settings(&self.root()))
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("vault")
    }

    /// A directory beside the vault that must not be reachable.
    pub(crate) fn outside(&self) -> PathBuf {
        let path = self.directory.path().join("outside");
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, content).expect("a file");
    }

    pub(crate) fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).expect("a readable file")
    }

    pub(crate) fn write(&self, path: &str, content: &str, mode: WriteMode) {
        self.vault.write(&note(path), content, mode).expect("a written note");
    }

    /// Every file and folder in the vault, including hidden ones.
    pub(crate) fn everything(&self) -> Vec<String> {
        fn visit(root: &Path, at: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(at).expect("a folder").flatten() {
                let path = entry.path();
                found.push(path.strip_prefix(root).expect("below").to_string_lossy().into_owned());
                if entry.file_type().expect("a type").is_dir() {
                    visit(root, &path, found);
                }
            }
        }
        let mut found = Vec::new();
        visit(&self.root(), &self.root(), &mut found);
        found.sort();
        found
    }
}

fn settings(path: &Path) -> Settings {
    Settings {
        path: path.to_owned(),
        extensions: vec!["md".to_owned()],
        exclude_dirs: vec![".obsidian".to_owned(), ".git".to_owned()],
    }
}

pub(crate) fn note(path: &str) -> NotePath {
    NotePath::parse(path).expect("a path")
}

pub(crate) fn folder(path: &str) -> FolderPath {
    FolderPath::parse(path).expect("a path")
}
