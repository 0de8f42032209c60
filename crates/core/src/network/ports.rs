//! The ports at the end of a rule: `:443`, `:80,443`. A rule without them means every port.

use std::fmt;

/// The most ports of one rule. A longer list is probably generated, and a rule without ports is better then.
pub const MAX_PORTS_PER_RULE: usize = 64;

/// The ports of a rule. Empty: all ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RulePorts(Vec<u16>);

impl RulePorts {
    /// Splits a rule into the text before the colon and the ports after it.
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
                    "{part:?} is not a port; write numbers from 1 to 65535 after the colon, separated by commas"
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

    /// The ports; none if the rule is about all ports.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied()
    }

    /// Whether the rule is about all ports, and so about the destination as a whole.
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
