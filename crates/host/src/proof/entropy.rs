//! No random number comes twice, in whatever machine.
//!
//! Siblings whose generators were not seeded anew draw the same sequence, though not at the same time: other
//! programs draw from it as well. So each machine draws many, and all that were ever drawn are remembered.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::guest::Guest;
use super::verdict::Finding;

/// Requests of 32 bytes: each takes the kernel's generator one step further.
const KERNEL: &str = "dd if=/dev/urandom bs=32 count=64 2>/dev/null | od -An -v -tx1 -w32 | tr -d ' '
cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/uuid";

/// 64 and two UUIDs.
const KERNEL_NUMBERS: usize = 66;

/// The smallest Python there is lacks some modules; what it has draws for them.
const PYTHON: &str = "python3 -c '
import os
try: from secrets import token_hex
except ImportError: token_hex = lambda n: os.urandom(n).hex()
try: from uuid import uuid4
except ImportError: uuid4 = lambda: os.urandom(16).hex()
for _ in range(16):
    print(token_hex(32)); print(os.getrandom(32).hex()); print(uuid4())'";

const PYTHON_NUMBERS: usize = 48;

/// Every random number that was drawn so far, and by whom.
#[derive(Debug, Default)]
pub struct Seen(Mutex<HashMap<String, String>>);

impl Seen {
    /// Takes up what a machine drew: so many numbers, and none that was there before.
    fn add(&self, machine: &str, drawn: &str, count: usize) -> Result<(), Finding> {
        let numbers: Vec<_> = drawn.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if numbers.len() != count {
            return Err(Finding::wrong(format!("{count} random numbers were asked for: {drawn:?}")));
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for number in numbers {
            if let Some(earlier) = seen.insert(number.to_owned(), machine.to_owned()) {
                return Err(Finding::wrong(format!(
                    "{machine} drew the random number {number}, which {earlier} had drawn"
                )));
            }
        }
        Ok(())
    }
}

pub(super) async fn kernel(guest: Guest<'_>, seen: &Seen) -> Result<(), Finding> {
    seen.add(guest.name(), &guest.sh(KERNEL).await?, KERNEL_NUMBERS)
}

pub(super) async fn python(guest: Guest<'_>, seen: &Seen) -> Result<(), Finding> {
    if !guest.has_program("python3").await? {
        return Err(Finding::untried("the image has no python3"));
    }
    seen.add(guest.name(), &guest.sh(PYTHON).await?, PYTHON_NUMBERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_another_machine_drew_is_found() {
        let seen = Seen::default();
        seen.add("a", "1\n2\n", 2).unwrap();
        seen.add("b", "3\n4\n", 2).unwrap();
        let Err(Finding::Wrong(text)) = seen.add("c", "5\n1\n", 2) else { panic!("1 came twice") };
        assert!(text.contains("c drew") && text.contains("which a had drawn"), "{text}");
    }

    #[test]
    fn a_machine_that_repeats_itself_or_draws_too_little_is_found() {
        assert!(Seen::default().add("a", "1\n1\n", 2).is_err());
        assert!(Seen::default().add("a", "1\n", 2).is_err());
        assert!(Seen::default().add("a", "", 2).is_err());
    }
}
