//! Stops periodic work of the guest's kernel, so that an idle VM stays idle.
//!
//! Every wakeup of a VM costs the host half a millisecond, and there are many VMs.

use std::arch::asm;
use std::fs;
use std::io;

/// Settings for periodic work of the kernel: memory is compacted only on demand, statistics are gathered once a minute,
/// and the watchdog for hung processors is off, because the host may pause the VM on purpose.
const SETTINGS: [(&str, &str); 3] =
    [("vm/compaction_proactiveness", "0"), ("vm/stat_interval", "60"), ("kernel/watchdog", "0")];

/// The timer that the first processor uses.
const CLOCK: &str = "/sys/devices/system/clockevents/clockevent0/current_device";

const TIMER_PORTS: libc::c_ulong = 0x40;
const TIMER_PORT_COUNT: libc::c_ulong = 4;
const CHANNEL_0: u16 = 0x40;
const COMMAND: u16 = 0x43;

/// Channel 0, low and high byte, mode 0: counts down once. The start value zero gives the longest time.
const STOP: [(u16, u8); 3] = [(COMMAND, 0x30), (CHANNEL_0, 0), (CHANNEL_0, 0)];

/// Applies all settings. Failures are ignored: the VM then wakes a little more often.
pub(super) fn reduce_wakeups() {
    for (setting, value) in SETTINGS {
        let _ = fs::write(format!("/proc/sys/{setting}"), value);
    }
    let _ = stop_unused_timer();
}

/// Stops the interval timer (PIT), which fires 18 times a second from its reset on. A kernel that uses the processors'
/// own timers ignores it, but the host has to wake for it.
fn stop_unused_timer() -> io::Result<()> {
    if !fs::read_to_string(CLOCK)?.starts_with("lapic") {
        return Ok(());
    }
    // SAFETY: requests access to the ports of the timer, which nothing else uses.
    if unsafe { libc::ioperm(TIMER_PORTS, TIMER_PORT_COUNT, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    for (port, value) in STOP {
        // SAFETY: the kernel has just given this process access to the port; no memory is touched.
        unsafe {
            asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
        };
    }
    // SAFETY: gives the ports back.
    unsafe { libc::ioperm(TIMER_PORTS, TIMER_PORT_COUNT, 0) };
    Ok(())
}
