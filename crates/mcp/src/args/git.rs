//! Parameters of the git tools: URLs, branches, remotes, files, authors. Problems never repeat the text, because it may
//! hold credentials.

use agentiso_git::calls::Author;
use agentiso_git::{BranchName, GitUrl, Remote, RepoFile};
use serde_json::json;

use super::word::Word;

impl Word<GitUrl> {
    pub(crate) const fn url(name: &'static str, about: &'static str) -> Self {
        let parse = |text: &str| GitUrl::parse(text).map_err(|problem| problem.to_string());
        Self { text: || json!({ "type": "string", "pattern": "://|@" }), ..Self::of(name, about, parse) }
    }
}

impl Word<BranchName> {
    pub(crate) const fn branch(about: &'static str) -> Self {
        Self::of("branch", about, |text| BranchName::parse(text).map_err(|problem| problem.to_string()))
    }
}

impl Word<Remote> {
    pub(crate) const fn remote(about: &'static str) -> Self {
        let parse = |text: &str| Remote::parse(text).map_err(|problem| problem.to_string());
        Self { default: Some("origin"), ..Self::of("remote", about, parse) }
    }
}

impl Word<RepoFile> {
    pub(crate) const fn file(name: &'static str, about: &'static str) -> Self {
        Self::of(name, about, |text| RepoFile::parse(text).map_err(|problem| problem.to_string()))
    }
}

impl Word<String> {
    /// The name or the address of an author.
    pub(crate) const fn author(name: &'static str, about: &'static str) -> Self {
        Self::of(name, about, |text| {
            Author::check(text).map(|()| text.to_owned()).map_err(|problem| problem.to_string())
        })
    }
}
