//! Bearer tokens: generated at random, stored as hashes, compared in constant time.

use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// Random bytes of a token, which become twice as many digits.
const RANDOM: usize = 32;

/// A token from elsewhere must be as hard to guess.
const SHORTEST: usize = 32;
const LONGEST: usize = 512;

#[derive(Debug, Error)]
pub enum TokenError {
    #[error("cannot get random numbers from the host: {0}")]
    Random(getrandom::Error),
    #[error("a token must be {SHORTEST} to {LONGEST} letters, digits or symbols, without spaces")]
    Form,
}

/// The token itself. Only [`expose`](Self::expose) shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn random(prefix: &str) -> Result<Self, TokenError> {
        let mut bytes = [0; RANDOM];
        getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
        Ok(Self(format!("{prefix}{}", hex(&bytes))))
    }

    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let is_token =
            (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if is_token { Ok(Self(text.to_owned())) } else { Err(TokenError::Form) }
    }

    /// The secret, for the client that is to use it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The stored form of a token. A token has enough randomness that its plain hash reveals nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Whether `text` is the token. Takes the same time for a nearly right text as for any other.
    pub fn is_of(&self, text: &str) -> bool {
        let Self(other) = Self::of(text);
        let differences = self.0.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(differences) == 0
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_matches_its_hash_and_stays_hidden() {
        let token = Token::random("mcp-").unwrap();
        assert_eq!(token.expose().len(), 4 + 64);
        let hash = TokenHash::parse(&token.hash().to_string()).unwrap();
        assert!(hash.is_of(token.expose()));
        assert!(!hash.is_of(&token.expose()[1..]) && !hash.is_of(""));
        assert_ne!(Token::random("mcp-").unwrap(), token);
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn short_tokens_and_malformed_hashes_are_refused() {
        assert!(Token::parse("secret").is_err());
        assert!(Token::parse(&"a b".repeat(20)).is_err());
        assert!(Token::parse(&"x".repeat(32)).is_ok());
        for wrong in ["", "zz", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
            assert_eq!(TokenHash::parse(wrong), None, "{wrong}");
        }
    }
}
