//! The guest kernel's parameters. Only this file and [`super::argv`] differ between accelerators.

use crate::accelerator::Chosen;

/// The kernel's command line for a VM on this host.
///
/// `tsc_khz` is the rate of the host's time stamp counter, if known; `extra` comes from the configuration and goes
/// last, so that it overrides the others.
pub(crate) fn kernel_args(accelerator: Chosen, tsc_khz: Option<u64>, extra: &str) -> String {
    let mut args: Vec<String> = [
        "console=ttyS0",
        // Only problems are printed: every character on the serial port costs a VM exit.
        "quiet",
        // A triple fault is the reset that microvm always has; with `-no-reboot` QEMU then exits.
        "reboot=t",
        // A panic ends the VM at once instead of hanging it.
        "panic=-1",
    ]
    .map(str::to_owned)
    .to_vec();
    match (accelerator, tsc_khz) {
        (Chosen::Tcg, Some(khz)) => args.extend([
            // Under emulation the guest's counter is the host's. On a busy host the kernel cannot calibrate it against
            // the emulated timer and hangs, so the rate is passed in.
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

/// The rate of the host's time stamp counter, from the kernel's own calibration: one loop takes two ticks.
pub(crate) fn host_tsc_khz(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("bogomips"))?;
    let bogomips: f64 = line.split(':').nth(1)?.trim().parse().ok()?;
    (bogomips.is_finite() && bogomips > 0.0).then_some((bogomips * 500.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_rate_is_passed_only_under_tcg() {
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
    fn clock_rate_is_half_of_bogomips() {
        assert_eq!(host_tsc_khz("flags : a\nbogomips\t: 5000.05\nbogomips\t: 1.0"), Some(2_500_025));
        assert_eq!(host_tsc_khz("bogomips\t: none"), None);
        assert_eq!(host_tsc_khz(""), None);
    }
}
