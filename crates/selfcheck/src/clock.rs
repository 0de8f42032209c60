//! Checks that the wall clock agrees with the host's.

use std::time::{SystemTime, UNIX_EPOCH};

use super::guest::Guest;
use super::verdict::Finding;

/// The tolerated difference of a VM's clock, in seconds.
const TOLERANCE: f64 = 1.0;

pub(super) async fn check(guest: Guest<'_>) -> Result<(), Finding> {
    let asked = host_now();
    let said = guest.sh("date +%s.%N").await?;
    let answered = host_now();
    let said: f64 =
        said.parse().map_err(|_| Finding::wrong(format!("the clock of {} reads {said:?}", guest.name())))?;
    judge(said, asked, answered)
}

fn host_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The guest read its clock at some time between the question and the answer.
fn judge(said: f64, asked: f64, answered: f64) -> Result<(), Finding> {
    let off = if said < asked { said - asked } else { (said - answered).max(0.0) };
    if off.abs() < TOLERANCE {
        return Ok(());
    }
    let direction = if off < 0.0 { "behind" } else { "ahead of" };
    Err(Finding::wrong(format!("its clock is {:.1} s {direction} the host's", off.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_check_tolerates_slow_answers_only() {
        assert!(judge(103.0, 100.0, 105.0).is_ok(), "a slow answer is no wrong clock");
        assert!(judge(99.5, 100.0, 100.1).is_ok());
        let Err(Finding::Wrong(text)) = judge(98.0, 100.0, 100.1) else { panic!("it is behind") };
        assert!(text.contains("2.0 s behind"), "{text}");
        let Err(Finding::Wrong(text)) = judge(3700.1, 100.0, 100.1) else { panic!("it is ahead") };
        assert!(text.contains("3600.0 s ahead"), "{text}");
    }
}
