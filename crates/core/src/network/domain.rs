//! Domain names, and rules about them: `example.com`, `*.example.com`, `example.com:443`.

use std::fmt;

use super::ports::RulePorts;

/// The longest name that DNS can carry, written with dots.
const MAX_LEN: usize = 253;
const MAX_LABEL: usize = 63;

/// A host name as DNS compares it: lower case, ASCII, without a dot at the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainName(String);

impl DomainName {
    /// Parses a name as a person writes it. Names in other scripts are converted to their ASCII (xn--) form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = if text.is_ascii() {
            Self::from_wire(text)?
        } else {
            let ascii = idna::domain_to_ascii(text).map_err(|_| {
                format!("{text:?} is not a valid international domain name; write its xn-- form")
            })?;
            Self::from_wire(&ascii)?
        };
        match name.0.split('.').find(|label| label.starts_with('-') || label.ends_with('-')) {
            None => Ok(name),
            Some(label) => Err(format!("{label:?} begins or ends with '-', which is not allowed")),
        }
    }

    /// Parses a name as programs use it. This includes names with labels that begin or end with a dash.
    pub fn from_wire(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err("is empty; write a name such as example.com".to_owned());
        }
        if name.len() > MAX_LEN {
            return Err(format!("the name is {} characters long; DNS allows at most {MAX_LEN}", name.len()));
        }
        for label in name.split('.') {
            if label.is_empty() {
                return Err(format!("{name:?} has an empty part between its dots"));
            }
            if label.len() > MAX_LABEL {
                return Err(format!(
                    "{label:?} is longer than the {MAX_LABEL} characters DNS allows for one part"
                ));
            }
            // Underscores are not allowed in host names, but names of services have them.
            let bad = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
            if let Some(bad) = label.chars().find(bad) {
                return Err(format!(
                    "{name:?} contains {bad:?}; only letters, digits, '-', '_' and dots are allowed"
                ));
            }
        }
        // No top-level domain is a number, and many programs take such names for addresses.
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        if name.rsplit('.').next().is_some_and(is_number) {
            return Err(format!("{name:?} is an address; put addresses into the list of CIDRs"));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is a subdomain of the other, at any depth.
    pub(crate) fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rule about one name, or about all its subdomains, and some or all of their ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DomainRule {
    name: DomainName,
    below: bool,
    ports: RulePorts,
}

impl DomainRule {
    /// Parses a rule. The error is a sentence for its author.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
            return Err(format!("{text:?} is a URL; write only its host, {host:?}"));
        }
        let (name, ports) = RulePorts::split(text)?;
        if name == "*" {
            return Err("\"*\" alone would match every name; set allow_internet instead".to_owned());
        }
        let (name, below) = match name.strip_prefix("*.") {
            Some(parent) => (parent, true),
            None => (name, false),
        };
        if name.contains('*') {
            return Err(format!(
                "{text:?} has a misplaced '*'; it may only be the first part, as in *.example.com"
            ));
        }
        Ok(Self { name: DomainName::parse(name)?, below, ports })
    }

    pub fn ports(&self) -> &RulePorts {
        &self.ports
    }

    /// Whether the rule is about this name, on any port.
    pub(crate) fn matches_name(&self, name: &DomainName) -> bool {
        if self.below { name.is_below(&self.name) } else { *name == self.name }
    }

    pub fn matches(&self, name: &DomainName, port: u16) -> bool {
        self.matches_name(name) && self.ports.contains(port)
    }
}

impl fmt::Display for DomainRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", if self.below { "*." } else { "" }, self.name, self.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    #[test]
    fn bad_domain_rules_are_refused_with_reason() {
        let long = format!("{}.com", "x".repeat(64));
        let longer = format!("{}com", "abcdefgh.".repeat(30));
        let bad = [
            ("", "empty"),
            (".", "empty"),
            ("*", "allow_internet"),
            ("*.", "empty"),
            ("*.*.com", "first part"),
            ("w*.example.com", "first part"),
            ("a..b", "empty part"),
            (".example.com", "empty part"),
            ("https://example.com/x", "write only its host, \"example.com\""),
            ("example.com/x", "'/'"),
            ("exa mple.com", "' '"),
            ("-a.com", "begins or ends"),
            ("10.1.2.3", "list of CIDRs"),
            ("1.2.3", "list of CIDRs"),
            ("example.com:0", "1 to 65535"),
            ("example.com:http", "1 to 65535"),
            ("::1", "port"),
            (long.as_str(), "63"),
            (longer.as_str(), "253"),
            ("\u{200d}.com", "international"),
        ];
        for (text, why) in bad {
            let error = DomainRule::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn domain_rule_is_normalised() {
        let cases = [
            (" Example.COM. ", "example.com"),
            ("*.Example.com:443", "*.example.com:443"),
            ("bücher.de:80,443,80", "xn--bcher-kva.de:80,443"),
            ("_acme.example.com", "_acme.example.com"),
            ("localdb", "localdb"),
        ];
        for (text, normal) in cases {
            assert_eq!(DomainRule::parse(text).unwrap().to_string(), normal);
        }
    }

    #[test]
    fn wildcard_matches_subdomains_only() {
        let rule = DomainRule::parse("*.example.com").unwrap();
        assert!(rule.matches_name(&name("a.example.com")) && rule.matches_name(&name("a.b.example.com")));
        assert!(!rule.matches_name(&name("example.com")) && !rule.matches_name(&name("badexample.com")));
        let rule = DomainRule::parse("example.com:443").unwrap();
        assert!(rule.matches(&name("EXAMPLE.com"), 443));
        assert!(!rule.matches(&name("example.com"), 80) && !rule.matches(&name("a.example.com"), 443));
    }

    proptest! {
        #[test]
        fn domain_rule_survives_its_text_form(text in "(\\*\\.)?[a-zA-Z0-9._:,*-]{0,40}|.{0,30}") {
            if let Ok(rule) = DomainRule::parse(&text) {
                let written = rule.to_string();
                prop_assert_eq!(written.to_lowercase(), written.clone());
                prop_assert_eq!(DomainRule::parse(&written).unwrap(), rule);
            }
        }

        #[test]
        fn wildcard_ignores_names_with_longer_label(
            parent in "[a-z]{1,8}(\\.[a-z]{1,8}){0,2}", label in "[a-z0-9]{1,8}",
        ) {
            let rule = DomainRule::parse(&format!("*.{parent}")).unwrap();
            let below = name(&format!("{label}.{parent}"));
            prop_assert!(rule.matches_name(&below));
            let beside = name(&format!("{label}{parent}"));
            prop_assert!(!rule.matches_name(&beside));
        }
    }
}
