//! Checks the separation of guests that share the host's hardware: hyperthreads, merged pages, swap, flaws of the
//! processor, nested virtualization.
//!
//! [`HostSetup::read`] reads the kernel's settings, and [`outcomes`] judges them. No finding is a failure, because only
//! the administrator knows whether guests of different owners share the host. docs/security.md lists the same points
//! with the recommendations that they come from.

use std::fs;
use std::path::Path;

use super::report::Outcome;

const SMT: &str = "sys/devices/system/cpu/smt/control";
const KSM: &str = "sys/kernel/mm/ksm/run";
const SWAPS: &str = "proc/swaps";
const FLAWS: &str = "sys/devices/system/cpu/vulnerabilities";
const MODULES: [&str; 2] = ["kvm_intel", "kvm_amd"];

/// The most flaws that are named in one line; the rest is counted.
const QUOTED_FLAWS: usize = 3;

/// The kernel's settings. `None`: the setting cannot be read, for example in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostSetup {
    smt: Option<String>,
    ksm: Option<String>,
    swaps: Option<Vec<Swap>>,
    /// Name and verdict, sorted by name.
    flaws: Option<Vec<(String, String)>>,
    /// The modules of KVM that allow nesting.
    nesting: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Swap {
    name: String,
    kind: SwapKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwapKind {
    /// Written to a disk unencrypted.
    Disk,
    /// Written to a disk, encrypted by device mapper.
    Encrypted,
    /// Compressed, and kept in memory.
    Memory,
}

impl HostSetup {
    /// Reads below `root`, which is `/` except in tests.
    pub(super) fn read(root: &Path) -> Self {
        let line = |path: &str| fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned());
        Self {
            smt: line(SMT),
            ksm: line(KSM),
            swaps: line(SWAPS).map(|table| swaps(root, &table)),
            flaws: flaws(&root.join(FLAWS)),
            nesting: MODULES
                .into_iter()
                .filter(|module| {
                    let nested = line(&format!("sys/module/{module}/parameters/nested"));
                    matches!(nested.as_deref(), Some("1" | "Y"))
                })
                .collect(),
        }
    }
}

fn swaps(root: &Path, table: &str) -> Vec<Swap> {
    let names = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    names.map(|name| Swap { name: name.to_owned(), kind: swap_kind(root, name) }).collect()
}

fn swap_kind(root: &Path, name: &str) -> SwapKind {
    let Some(device) = name.strip_prefix("/dev/") else { return SwapKind::Disk };
    if device.starts_with("zram") {
        return SwapKind::Memory;
    }
    let uuid = fs::read_to_string(root.join("sys/class/block").join(device).join("dm/uuid"));
    match uuid.is_ok_and(|uuid| uuid.starts_with("CRYPT-")) {
        true => SwapKind::Encrypted,
        false => SwapKind::Disk,
    }
}

fn flaws(directory: &Path) -> Option<Vec<(String, String)>> {
    let entries = fs::read_dir(directory).ok()?;
    let mut flaws: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let verdict = fs::read_to_string(entry.path()).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), verdict.trim().to_owned()))
        })
        .collect();
    flaws.sort();
    Some(flaws)
}

/// One outcome for each point.
pub(super) fn outcomes(setup: &HostSetup) -> Vec<Outcome> {
    vec![
        smt(setup.smt.as_deref()),
        ksm(setup.ksm.as_deref()),
        swap(setup.swaps.as_deref()),
        processor(setup.flaws.as_deref()),
        nesting(&setup.nesting),
    ]
}

fn unknown(name: &'static str, path: &str) -> Outcome {
    Outcome::note(name, format!("cannot read /{path} here"), "check it on the host itself")
}

fn smt(control: Option<&str>) -> Outcome {
    const NAME: &str = "hyperthreads";
    match control {
        None => unknown(NAME, SMT),
        Some(control @ ("off" | "forceoff" | "notsupported" | "notimplemented")) => {
            Outcome::ok(NAME, format!("not in use ({control})"))
        }
        Some(_) => Outcome::note(
            NAME,
            "on: guests that share a core can observe each other",
            "boot the host with nosmt if workspaces of different owners share it",
        ),
    }
}

fn ksm(run: Option<&str>) -> Outcome {
    const NAME: &str = "page merging";
    match run {
        // A kernel without it merges nothing.
        None => Outcome::ok(NAME, "not supported by the kernel"),
        Some("1") => Outcome::note(
            NAME,
            "on: programs can find out what others have in memory; agentiso excludes its VMs",
            "echo 0 > /sys/kernel/mm/ksm/run",
        ),
        Some(_) => Outcome::ok(NAME, "off"),
    }
}

fn swap(swaps: Option<&[Swap]>) -> Outcome {
    const NAME: &str = "swap";
    let Some(swaps) = swaps else { return unknown(NAME, SWAPS) };
    let of = |kind: SwapKind| -> Vec<&str> {
        swaps.iter().filter(|swap| swap.kind == kind).map(|swap| swap.name.as_str()).collect()
    };
    let plain = of(SwapKind::Disk);
    if !plain.is_empty() {
        return Outcome::note(
            NAME,
            format!("guest memory may be written unencrypted to {} and remain there", plain.join(", ")),
            "swapoff -a, or swap to an encrypted device",
        );
    }
    match swaps {
        [] => Outcome::ok(NAME, "none"),
        [_, ..] => {
            let named = [(SwapKind::Encrypted, "encrypted"), (SwapKind::Memory, "in memory")];
            let parts = named.into_iter().filter_map(|(kind, word)| {
                let names = of(kind);
                (!names.is_empty()).then(|| format!("{} ({word})", names.join(", ")))
            });
            Outcome::ok(NAME, parts.collect::<Vec<_>>().join(", "))
        }
    }
}

fn processor(flaws: Option<&[(String, String)]>) -> Outcome {
    const NAME: &str = "processor";
    let Some(flaws) = flaws.filter(|flaws| !flaws.is_empty()) else { return unknown(NAME, FLAWS) };
    let open: Vec<String> = flaws
        .iter()
        .filter(|(_, verdict)| is_open(verdict))
        .map(|(name, verdict)| format!("{name} ({verdict})"))
        .collect();
    if open.is_empty() {
        return Outcome::ok(NAME, format!("all {} known vulnerabilities are mitigated", flaws.len()));
    }
    let more = match open.len().saturating_sub(QUOTED_FLAWS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let quoted: Vec<&str> = open.iter().take(QUOTED_FLAWS).map(String::as_str).collect();
    Outcome::note(
        NAME,
        format!("guests can exploit unmitigated vulnerabilities: {}{more}", quoted.join(", ")),
        "update microcode and kernel, and do not boot with mitigations=off; spec_store_bypass_disable=on for a mitigation \
         \"via prctl\"; see `grep . /sys/devices/system/cpu/vulnerabilities/*`",
    )
}

/// Whether guests can use a flaw. The kernel's verdict is "Not affected", "Mitigation: …", "Vulnerable…" or "Unknown…".
/// The rest of a mitigation may say that it holds only without hyperthreads or not for VMs. If the host itself is a VM,
/// its kernel may not know about the hyperthreads below. A mitigation "via prctl" is for processes that ask for it,
/// which QEMU does not; one "via prctl and seccomp" is also for processes with a system call filter, which QEMU has.
fn is_open(verdict: &str) -> bool {
    let verdict = verdict.to_ascii_lowercase();
    match verdict.starts_with("not affected") {
        true => false,
        false => {
            verdict.contains("smt vulnerable")
                || verdict.contains("smt host state unknown")
                || (verdict.contains("via prctl") && !verdict.contains("and seccomp"))
                || verdict.contains("vmx: vulnerable")
                || verdict.contains("kvm: vulnerable")
                || !(verdict.starts_with("mitigation") || verdict.starts_with("kvm: mitigation"))
        }
    }
}

fn nesting(modules: &[&'static str]) -> Outcome {
    const NAME: &str = "nesting";
    match modules {
        [] => Outcome::ok(NAME, "off"),
        [module, ..] => Outcome::note(
            NAME,
            format!("nested virtualization is on in {module}, and agentiso does not need it"),
            format!("put \"options {module} nested=0\" into /etc/modprobe.d, unless something else needs it"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::report::Verdict;

    /// A tree of files below a directory.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn judged(files: &[(&str, &str)]) -> Vec<(Verdict, String)> {
        let outcomes = outcomes(&HostSetup::read(tree(files).path()));
        outcomes.into_iter().map(|outcome| (outcome.verdict, outcome.detail)).collect()
    }

    #[test]
    fn hardened_host_gets_no_notes() {
        let verdicts = judged(&[
            (SMT, "forceoff\n"),
            (KSM, "0\n"),
            (
                SWAPS,
                "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0 partition 1 0 5\n/dev/dm-1 partition 1 0 1\n",
            ),
            ("sys/class/block/dm-1/dm/uuid", "CRYPT-LUKS2-0123\n"),
            ("sys/devices/system/cpu/vulnerabilities/l1tf", "Not affected\n"),
            ("sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear CPU buffers; SMT disabled\n"),
            ("sys/devices/system/cpu/vulnerabilities/itlb_multihit", "KVM: Mitigation: VMX disabled\n"),
            ("sys/module/kvm_intel/parameters/nested", "N\n"),
        ]);
        let details: Vec<_> = verdicts.iter().map(|(_, detail)| detail.as_str()).collect();
        assert!(verdicts.iter().all(|(verdict, _)| *verdict == Verdict::Ok), "{verdicts:?}");
        assert_eq!(
            details,
            [
                "not in use (forceoff)",
                "off",
                "/dev/dm-1 (encrypted), /dev/zram0 (in memory)",
                "all 3 known vulnerabilities are mitigated",
                "off",
            ]
        );
    }

    #[test]
    fn open_host_gets_notes_and_no_failures() {
        let verdicts = judged(&[
            (SMT, "on\n"),
            (KSM, "1\n"),
            (
                SWAPS,
                "Filename\tType\tSize\tUsed\tPriority\n/swapfile file 1 0 -2\n/dev/dm-0 partition 1 0 -3\n",
            ),
            ("sys/class/block/dm-0/dm/uuid", "LVM-abc\n"),
            ("sys/devices/system/cpu/vulnerabilities/a", "Vulnerable\n"),
            (
                "sys/devices/system/cpu/vulnerabilities/b",
                "Mitigation: PTE Inversion; VMX: cache flushes, SMT vulnerable\n",
            ),
            ("sys/devices/system/cpu/vulnerabilities/c", "KVM: Vulnerable\n"),
            ("sys/devices/system/cpu/vulnerabilities/d", "Unknown: No mitigations\n"),
            ("sys/devices/system/cpu/vulnerabilities/e", "Not affected\n"),
            ("sys/module/kvm_amd/parameters/nested", "1\n"),
        ]);
        assert!(verdicts.iter().all(|(verdict, _)| *verdict == Verdict::Note), "{verdicts:?}");
        assert!(verdicts[2].1.contains("/swapfile, /dev/dm-0"), "{verdicts:?}");
        assert!(
            verdicts[3].1.contains("a (Vulnerable)") && verdicts[3].1.ends_with("and 1 more"),
            "{verdicts:?}"
        );
        assert!(verdicts[4].1.contains("kvm_amd"), "{verdicts:?}");
    }

    #[test]
    fn partial_mitigations_count_as_open() {
        for verdict in [
            "Mitigation: Clear CPU buffers; SMT Host state unknown",
            "Mitigation: Speculative Store Bypass disabled via prctl",
            "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
            "KVM: Vulnerable",
        ] {
            assert!(is_open(verdict), "{verdict}");
        }
        for verdict in [
            "Not affected",
            "Mitigation: Clear CPU buffers; SMT disabled",
            "Mitigation: Speculative Store Bypass disabled via prctl and seccomp",
        ] {
            assert!(!is_open(verdict), "{verdict}");
        }
    }

    #[test]
    fn unreadable_kernel_settings_give_notes() {
        let verdicts = judged(&[]);
        let notes = verdicts.iter().filter(|(verdict, _)| *verdict == Verdict::Note).count();
        assert_eq!(notes, 3, "{verdicts:?}");
        let without_swap = judged(&[(SWAPS, "Filename\n")]);
        assert_eq!(without_swap[2], (Verdict::Ok, "none".to_owned()));
    }
}
