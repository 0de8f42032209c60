//! Parameters of the git tools: URLs, branches, remotes, files, authors.

use agentiso_git::calls::Author;
use agentiso_git::{BranchName, GitUrl, Remote, RepoFile};
use serde_json::{Map, Value};

use super::param::{Param, Parameter};
use super::words::string;

/// A text that is parsed into a type of `agentiso_git`.
pub(crate) struct GitWord<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) default: Option<&'static str>,
    /// Regular expression for the schema, where one exists.
    pattern: Option<&'static str>,
    /// Problems never repeat the text, because it may hold credentials.
    parse: fn(&str) -> Result<T, String>,
}

impl<T> GitWord<T> {
    const fn new(name: &'static str, about: &'static str, parse: fn(&str) -> Result<T, String>) -> Self {
        Self { name, about, default: None, pattern: None, parse }
    }
}

impl GitWord<GitUrl> {
    pub(crate) const fn url(name: &'static str, about: &'static str) -> Self {
        let parse = |text: &str| GitUrl::parse(text).map_err(|problem| problem.to_string());
        Self { pattern: Some("://|@"), ..Self::new(name, about, parse) }
    }
}

impl GitWord<BranchName> {
    pub(crate) const fn branch(about: &'static str) -> Self {
        Self::new("branch", about, |text| BranchName::parse(text).map_err(|problem| problem.to_string()))
    }
}

impl GitWord<Remote> {
    pub(crate) const fn remote(about: &'static str) -> Self {
        let parse = |text: &str| Remote::parse(text).map_err(|problem| problem.to_string());
        Self { default: Some("origin"), ..Self::new("remote", about, parse) }
    }
}

impl GitWord<RepoFile> {
    pub(crate) const fn file(name: &'static str, about: &'static str) -> Self {
        Self::new(name, about, |text| RepoFile::parse(text).map_err(|problem| problem.to_string()))
    }
}

impl GitWord<String> {
    /// The name or the address of an author.
    pub(crate) const fn author(name: &'static str, about: &'static str) -> Self {
        Self::new(name, about, |text| {
            Author::check(text).map(|()| text.to_owned()).map_err(|problem| problem.to_string())
        })
    }
}

impl<T> Parameter for GitWord<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schema(&self) -> Map<String, Value> {
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "string".into());
        if let Some(pattern) = self.pattern {
            schema.insert("pattern".to_owned(), pattern.into());
        }
        if let Some(default) = self.default {
            schema.insert("default".to_owned(), default.into());
        }
        schema.insert("description".to_owned(), self.about.into());
        schema
    }
}

impl<T> Param for GitWord<T> {
    type Output = T;

    fn parse(&self, value: Value) -> Result<T, Vec<String>> {
        (self.parse)(&string(value)?).map_err(|problem| vec![problem])
    }
}
