//! A full disk: a file takes almost all space of the file system with the daemon's data.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FallocateFlags;

use super::Storm;
use crate::plan::Deed;
use crate::site::pause;
use crate::weather::Spell;

/// The bytes that are left free.
const LEFT: u64 = 128 << 10;

/// Other processes write at the same time, so the allocation can fail and is retried.
const ATTEMPTS: usize = 20;

/// The file that takes the space.
const FILLER: &str = "filler";

impl Storm<'_> {
    pub(super) fn fill_disk(&self, time: Duration) -> bool {
        let _spell = self.site.weather.begin(Spell::FullDisk);
        let path = self.site.disk.join(FILLER);
        let filled = (0..ATTEMPTS).any(|_| take_room(&path).is_ok());
        if filled {
            // A guest that writes meanwhile must be suspended and lose nothing.
            self.site.weather.want(Some(Deed::WriteLarge));
            pause(time);
            self.site.weather.want(None);
        }
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            self.unexpected(&format!("the disk could not be given its room back: {error}"));
            self.site.end();
        }
        self.wait_for_answer();
        filled
    }
}

/// Allocates all space of a file system except [`LEFT`] bytes.
fn take_room(path: &Path) -> std::io::Result<()> {
    let file = File::create(path)?;
    let stat = rustix::fs::fstatvfs(&file)?;
    let free = stat.f_bavail * stat.f_frsize;
    let taken = free.saturating_sub(LEFT).max(stat.f_frsize);
    Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, taken)?)
}
