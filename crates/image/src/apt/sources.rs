//! Parses the host's apt sources, in both formats that apt reads. Does no I/O.
//!
//! Only sources of a Debian root filesystem are kept: binary archives of the wanted suite and its companions (updates,
//! security, backports), with the component `main`.

use std::path::PathBuf;

/// One archive to take packages from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Archive {
    pub(crate) uri: String,
    pub(crate) suite: String,
    pub(crate) components: Vec<String>,
    pub(crate) key: Key,
    /// Set by an administrator for archives without signatures.
    pub(crate) trusted: bool,
}

/// The keys that the archive's signatures are checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The keys that the host's apt trusts for all archives.
    HostDefault,
    File(PathBuf),
    /// A key written into the source entry itself.
    Inline(String),
}

impl Archive {
    /// One line of a sources.list. `key_file` is the file that an inline key was written to.
    pub(crate) fn line(&self, key_file: Option<&str>) -> String {
        let mut options = vec!["arch=amd64".to_owned()];
        match (&self.key, key_file) {
            (Key::File(path), _) => options.push(format!("signed-by={}", path.display())),
            (Key::Inline(_), Some(path)) => options.push(format!("signed-by={path}")),
            (Key::Inline(_), None) | (Key::HostDefault, _) => {}
        }
        if self.trusted {
            options.push("trusted=yes".to_owned());
        }
        format!("deb [{}] {} {} {}", options.join(" "), self.uri, self.suite, self.components.join(" "))
    }

    /// The line that an image keeps: no credentials, and no key paths of the host that built it.
    pub(crate) fn public_line(&self) -> String {
        let trusted = if self.trusted { "[trusted=yes] " } else { "" };
        format!("deb {trusted}{} {} {}", redact(&self.uri), self.suite, self.components.join(" "))
    }
}

/// A URI without user name and password.
pub(crate) fn redact(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => uri.to_owned(),
    }
}

/// Whether packages of `candidate` belong to the release `suite`.
pub(crate) fn is_companion(suite: &str, candidate: &str) -> bool {
    match candidate.strip_prefix(suite) {
        Some(rest) => matches!(rest, "" | "-updates" | "-security" | "/updates" | "-backports"),
        None => false,
    }
}

/// The archives of `suite` in a one-line-style file.
pub(crate) fn parse_list(text: &str, suite: &str) -> Vec<Archive> {
    let mut archives = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t', '['])) else {
            continue;
        };
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(inner) => match inner.split_once(']') {
                Some((options, rest)) => (options, rest),
                None => continue,
            },
            None => ("", rest),
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        let (Some(uri), Some(entry_suite)) = (words.next(), words.next()) else { continue };
        let option = |wanted: &str| {
            options
                .split_whitespace()
                .filter_map(|option| option.split_once('='))
                .find_map(|(name, value)| name.eq_ignore_ascii_case(wanted).then(|| value.to_owned()))
        };
        keep(
            &mut archives,
            suite,
            Archive {
                uri,
                suite: entry_suite,
                components: words.collect(),
                key: option("signed-by").map_or(Key::HostDefault, |value| key_of(&value)),
                trusted: option("trusted").is_some_and(|value| is_yes(&value)),
            },
        );
    }
    archives
}

/// The archives of `suite` in a deb822-style file.
pub(crate) fn parse_deb822(text: &str, suite: &str) -> Vec<Archive> {
    let mut archives = Vec::new();
    for fields in stanzas(text) {
        let field = |wanted: &str| {
            fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
        };
        let words = |wanted: &str| field(wanted).unwrap_or_default().split_whitespace().map(str::to_owned);
        if !words("Types").any(|kind| kind == "deb") || field("Enabled").is_some_and(|value| !is_yes(value)) {
            continue;
        }
        for uri in words("URIs") {
            for entry_suite in words("Suites") {
                keep(
                    &mut archives,
                    suite,
                    Archive {
                        uri: uri.clone(),
                        suite: entry_suite,
                        components: words("Components").collect(),
                        key: field("Signed-By").map_or(Key::HostDefault, key_of),
                        trusted: field("Trusted").is_some_and(is_yes),
                    },
                );
            }
        }
    }
    archives
}

fn keep(archives: &mut Vec<Archive>, suite: &str, archive: Archive) {
    let wanted = is_companion(suite, &archive.suite) && archive.components.iter().any(|name| name == "main");
    if wanted && !archives.contains(&archive) {
        archives.push(archive);
    }
}

fn is_yes(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "yes" | "true" | "with" | "on" | "enable" | "1")
}

fn key_of(value: &str) -> Key {
    let value = value.trim();
    if value.contains("BEGIN PGP") {
        Key::Inline(value.to_owned())
    } else if value.starts_with('/') {
        // Several files may be given, separated by commas; apt's one-line option takes them in the same form.
        Key::File(PathBuf::from(value.split_whitespace().collect::<Vec<_>>().join(",")))
    } else {
        // A fingerprint selects among keys that the host trusts anyway.
        Key::HostDefault
    }
}

/// Splits deb822 text into stanzas of (name, value); continuation lines are joined, a lone dot is an empty line.
pub(crate) fn stanzas(text: &str) -> Vec<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut current: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            if !current.is_empty() {
                all.push(std::mem::take(&mut current));
            }
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = current.last_mut() {
                value.push('\n');
                let line = line.trim();
                value.push_str(if line == "." { "" } else { line });
            }
        } else if let Some((name, value)) = line.split_once(':') {
            current.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    if !current.is_empty() {
        all.push(current);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_source_formats_parse_alike() {
        let list = "deb [signed-by=/k.gpg] http://mirror.example/debian trixie main contrib # why\n\
                    deb-src http://mirror.example/debian trixie main\n";
        let deb822 = "Types: deb deb-src\nURIs: http://mirror.example/debian\nSuites: trixie\n\
                      Components: main contrib\nSigned-By: /k.gpg\n";
        let archives = parse_list(list, "trixie");
        assert_eq!(archives, parse_deb822(deb822, "trixie"));
        assert_eq!(
            archives[0].line(None),
            "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian trixie main contrib"
        );
    }

    #[test]
    fn foreign_and_disabled_sources_are_left_out() {
        let text = "Types: deb\nURIs: http://a.example\nSuites: nodistro\nComponents: main\n\n\
                    Types: deb\nURIs: http://b.example\nSuites: bookworm\nComponents: stable\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://c.example\nSuites: bookworm\nComponents: main\n\n\
                    Types: deb\nURIs: http://d.example\nSuites: bookworm bookworm-security bookworm-pgdg\nComponents: main\n";
        let suites: Vec<_> = parse_deb822(text, "bookworm").into_iter().map(|a| (a.uri, a.suite)).collect();
        let d = "http://d.example".to_owned();
        assert_eq!(suites, [(d.clone(), "bookworm".to_owned()), (d, "bookworm-security".to_owned())]);
    }

    #[test]
    fn inline_key_keeps_its_lines() {
        let text = "Types: deb\nURIs: http://a.example\nSuites: sid\nComponents: main\n\
                    Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n -----END PGP PUBLIC KEY BLOCK-----\n";
        let Key::Inline(key) = &parse_deb822(text, "sid")[0].key else { panic!("an inline key") };
        assert_eq!(key.lines().collect::<Vec<_>>()[1..3], ["", "abc"]);
    }

    #[test]
    fn credentials_are_stripped_from_public_sources() {
        let archive = &parse_list("deb https://me:s3cret@mirror.example:8443/debian sid main", "sid")[0];
        assert_eq!(archive.public_line(), "deb https://mirror.example:8443/debian sid main");
        assert!(archive.line(None).contains("s3cret"), "apt itself needs them");
        assert_eq!(redact("http://mirror.example/a@b"), "http://mirror.example/a@b");
    }

    proptest! {
        #[test]
        fn source_parsers_never_panic(text in "(?s).{0,300}") {
            parse_list(&text, "sid");
            parse_deb822(&text, "sid");
            redact(&text);
        }
    }
}
