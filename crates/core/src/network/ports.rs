//! The ports at the end of a rule: `:443`, `:80,443`. A rule without them means every port.

use std::fmt;

/// More ports than this in one rule are a list that somebody generated; a range of addresses without ports says it
/// better.
pub const MAX_PORTS_PER_RULE: usize = 64;

/// The ports a rule speaks of. Empty: all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RulePorts(Vec<u16>);

impl RulePorts {
    /// Splits a rule into what stands before the colon and the ports after it.
    pub(super) fn split(text: &str) -> Result<(&str, Self), String> {
        match text.split_once(':') {
            None => Ok((text, Self::default())),
            Some((rest, ports)) => Ok((rest, Self::parse(ports)?)),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut ports = Vec::new();
        for part in text.split(',') {
            // `parse` alone would accept "+80".
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let port = part.parse::<u16>().ok().filter(|port| digits && *port != 0);
            let Some(port) = port else {
                return Err(format!(
                    "{part:?} is no port; after the colon stand numbers from 1 to 65535, separated by commas"
                ));
            };
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        if ports.len() > MAX_PORTS_PER_RULE {
            return Err(format!(
                "{} ports in one rule; at most {MAX_PORTS_PER_RULE} are allowed",
                ports.len()
            ));
        }
        Ok(Self(ports))
    }

    pub fn contains(&self, port: u16) -> bool {
        self.0.is_empty() || self.0.contains(&port)
    }

    /// The ports, of which there are none if the rule speaks of all.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied()
    }

    /// Whether the rule speaks of every port, so that it says something about the host as a whole.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for RulePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, port) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { ":" } else { "," })?;
            port.fmt(f)?;
        }
        Ok(())
    }
}
