//! A host without room: somebody else fills the file system that all of the server's data is on.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FallocateFlags;

use super::Storm;
use crate::plan::Deed;
use crate::site::pause;
use crate::weather::Spell;

/// What is left to write, in bytes.
const LEFT: u64 = 128 << 10;

/// Others write meanwhile; then there is less room than was asked for, and it is asked for anew.
const ATTEMPTS: usize = 20;

/// The file that takes the room.
const FILLER: &str = "filler";

impl Storm<'_> {
    pub(super) fn fill_disk(&self, time: Duration) -> bool {
        let _spell = self.site.weather.begin(Spell::FullDisk);
        let path = self.site.disk.join(FILLER);
        let filled = (0..ATTEMPTS).any(|_| take_room(&path).is_ok());
        if filled {
            // Whoever writes now must be suspended, and must lose nothing.
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

/// Takes all room of a file's file system but for a little.
fn take_room(path: &Path) -> std::io::Result<()> {
    let file = File::create(path)?;
    let stat = rustix::fs::fstatvfs(&file)?;
    let free = stat.f_bavail * stat.f_frsize;
    let taken = free.saturating_sub(LEFT).max(stat.f_frsize);
    Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, taken)?)
}
