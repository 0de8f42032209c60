//! The guest kernel's parameters. What differs between accelerators is here and in [`super::argv`] only.

use crate::accelerator::Chosen;

/// The kernel's command line for a machine on this host.
///
/// `tsc_khz` is the rate of the host's time stamp counter, where known; `extra` comes from the configuration and
/// goes last, so that it overrides.
pub fn kernel_args(accelerator: Chosen, tsc_khz: Option<u64>, extra: &str) -> String {
    let mut args: Vec<String> = [
        "console=ttyS0",
        // Only what is wrong is printed: every character on the serial port costs an exit.
        "quiet",
        // A triple fault is the reset that microvm always has; with `-no-reboot` QEMU then exits.
        "reboot=t",
        // A panic ends the machine at once instead of hanging it.
        "panic=-1",
    ]
    .map(str::to_owned)
    .to_vec();
    match (accelerator, tsc_khz) {
        (Chosen::Tcg, Some(khz)) => args.extend([
            // Under emulation the guest's counter is the host's. On a busy host the kernel cannot calibrate it
            // against the emulated timer and hangs; so it is told.
            format!("tsc_early_khz={khz}"),
            "tsc=reliable".to_owned(),
            "no_timer_check".to_owned(),
        ]),
        (Chosen::Tcg, None) => args.push("no_timer_check".to_owned()),
        (Chosen::Kvm, Some(_) | None) => {}
    }
    if !extra.trim().is_empty() {
        args.push(extra.trim().to_owned());
    }
    args.join(" ")
}

/// The rate of the host's time stamp counter, from the kernel's own calibration: a loop takes two ticks.
pub fn host_tsc_khz(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("bogomips"))?;
    let bogomips: f64 = line.split(':').nth(1)?.trim().parse().ok()?;
    (bogomips.is_finite() && bogomips > 0.0).then_some((bogomips * 500.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulation_tells_the_kernel_the_clock_rate_and_kvm_does_not() {
        assert_eq!(
            kernel_args(Chosen::Tcg, Some(2_500_000), ""),
            "console=ttyS0 quiet reboot=t panic=-1 tsc_early_khz=2500000 tsc=reliable no_timer_check"
        );
        assert_eq!(
            kernel_args(Chosen::Kvm, Some(2_500_000), " x=1 "),
            "console=ttyS0 quiet reboot=t panic=-1 x=1"
        );
    }

    #[test]
    fn the_clock_rate_is_half_of_bogomips() {
        assert_eq!(host_tsc_khz("flags : a\nbogomips\t: 5000.05\nbogomips\t: 1.0"), Some(2_500_025));
        assert_eq!(host_tsc_khz("bogomips\t: none"), None);
        assert_eq!(host_tsc_khz(""), None);
    }
}
