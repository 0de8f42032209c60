//! Lets a machine that has nothing to do do nothing. Every time it wakes costs its host half a millisecond, and there are many
//! machines.

use std::arch::asm;
use std::fs;
use std::io;

/// Work that the kernel does by the clock: memory is compacted when it is asked for, statistics are gathered once a minute,
/// and nobody watches whether a processor hangs whose host stopped it on purpose.
const SETTINGS: [(&str, &str); 3] =
    [("vm/compaction_proactiveness", "0"), ("vm/stat_interval", "60"), ("kernel/watchdog", "0")];

/// What the first processor takes its time from.
const CLOCK: &str = "/sys/devices/system/clockevents/clockevent0/current_device";

const TIMER_PORTS: libc::c_ulong = 0x40;
const TIMER_PORT_COUNT: libc::c_ulong = 4;
const CHANNEL_0: u16 = 0x40;
const COMMAND: u16 = 0x43;

/// Channel 0, low and high byte, mode 0: counts down once. From zero, which is the longest.
const STOP: [(u16, u8); 3] = [(COMMAND, 0x30), (CHANNEL_0, 0), (CHANNEL_0, 0)];

/// A machine where one of these is missing rests a little less.
pub(super) fn rest() {
    for (setting, value) in SETTINGS {
        let _ = fs::write(format!("/proc/sys/{setting}"), value);
    }
    let _ = stop_unused_timer();
}

/// The interval timer of the first PCs runs from its reset on, 18 times a second. A kernel that has a better one, in its
/// processors, never looks at it, but a host has to wake for it.
fn stop_unused_timer() -> io::Result<()> {
    if !fs::read_to_string(CLOCK)?.starts_with("lapic") {
        return Ok(());
    }
    // SAFETY: asks for the ports of the timer, which nobody uses.
    if unsafe { libc::ioperm(TIMER_PORTS, TIMER_PORT_COUNT, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    for (port, value) in STOP {
        // SAFETY: the kernel has just let this process use the port; no memory is touched.
        unsafe {
            asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
        };
    }
    // SAFETY: gives the ports back.
    unsafe { libc::ioperm(TIMER_PORTS, TIMER_PORT_COUNT, 0) };
    Ok(())
}
