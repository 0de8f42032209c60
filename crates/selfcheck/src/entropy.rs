//! Checks that no random number is drawn twice, in any VM.
//!
//! Siblings whose generators were not reseeded draw the same sequence, though not at the same time, because other
//! programs draw from it as well. So each VM draws many numbers, and all of them are remembered.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::guest::Guest;
use super::verdict::Finding;

/// Reads 32 bytes at a time; each read advances the kernel's generator by one step.
const KERNEL: &str = "dd if=/dev/urandom bs=32 count=64 2>/dev/null | od -An -v -tx1 -w32 | tr -d ' '
cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/uuid";

/// 64 reads and two UUIDs.
const KERNEL_NUMBERS: usize = 66;

/// A minimal Python lacks some modules; `os.urandom` replaces them.
const PYTHON: &str = "python3 -c '
import os
try: from secrets import token_hex
except ImportError: token_hex = lambda n: os.urandom(n).hex()
try: from uuid import uuid4
except ImportError: uuid4 = lambda: os.urandom(16).hex()
for _ in range(16):
    print(token_hex(32)); print(os.getrandom(32).hex()); print(uuid4())'";

const PYTHON_NUMBERS: usize = 48;

/// Every random number so far, and the VM that drew it.
#[derive(Debug, Default)]
pub struct Seen(Mutex<HashMap<String, String>>);

impl Seen {
    /// Adds the numbers that a VM drew. It is an error if there are more or fewer than `count`, or if one was seen
    /// before.
    fn add(&self, vm: &str, drawn: &str, count: usize) -> Result<(), Finding> {
        let numbers: Vec<_> = drawn.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if numbers.len() != count {
            return Err(Finding::wrong(format!("expected {count} random numbers, got {drawn:?}")));
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for number in numbers {
            if let Some(earlier) = seen.insert(number.to_owned(), vm.to_owned()) {
                return Err(Finding::wrong(format!(
                    "{vm} drew the random number {number}, which {earlier} had drawn"
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
    fn random_number_of_another_vm_is_found() {
        let seen = Seen::default();
        seen.add("a", "1\n2\n", 2).unwrap();
        seen.add("b", "3\n4\n", 2).unwrap();
        let Err(Finding::Wrong(text)) = seen.add("c", "5\n1\n", 2) else { panic!("1 came twice") };
        assert!(text.contains("c drew") && text.contains("which a had drawn"), "{text}");
    }

    #[test]
    fn repeated_or_missing_random_numbers_are_found() {
        assert!(Seen::default().add("a", "1\n1\n", 2).is_err());
        assert!(Seen::default().add("a", "1\n", 2).is_err());
        assert!(Seen::default().add("a", "", 2).is_err());
    }
}
