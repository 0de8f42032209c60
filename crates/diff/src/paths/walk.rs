//! Walks two trees together and lists the differences.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::compare::Compare;
use super::options::DiffOptions;
use super::result::{ChangedPath, DiffError, PathDiff};
use super::sides::Sides;
use super::watched::Watched;
use crate::ext4::{Entries, Entry, Ext4Error, Inode, Kind, ROOT_INODE};
use crate::read_at::ReadAt;
use crate::watch::Watch;

/// The directory for files that a file system check finds. It is created with the file system and ignored here.
const LOST_AND_FOUND: &[u8] = b"/lost+found";

/// The longest path that system calls accept. Longer paths are counted but not listed.
const MAX_PATH: usize = 4096;

/// The most memory for the names of pending directories.
const MAX_PENDING: usize = 256 << 20;

/// The memory of a pending directory besides its name, rounded up.
const PENDING_OVERHEAD: usize = 64;

/// Compares two file systems.
///
/// Neither disk may change meanwhile. The file systems are compared as a mount after a crash would find them; data that
/// a guest has only in memory is not part of its disk.
pub fn diff_paths<O: ReadAt + ?Sized, N: ReadAt + ?Sized>(
    old: &O,
    new: &N,
    options: &DiffOptions<'_>,
) -> Result<PathDiff, DiffError> {
    let watch = Watch { deadline: options.deadline, cancelled: options.cancelled };
    let (old, new) = (Watched { disk: old, watch }, Watched { disk: new, watch });
    // If the comparison had to end, that is the reason for any other error.
    walk(&old, &new, options, watch).map_err(|error| watch.over().map_or(error, Into::into))
}

fn walk<O: ReadAt + ?Sized, N: ReadAt + ?Sized>(
    old: &O,
    new: &N,
    options: &DiffOptions<'_>,
    watch: Watch<'_>,
) -> Result<PathDiff, DiffError> {
    let sides = Sides::open(old, new, options)?;
    let compare = Compare { sides: &sides, budget: options.max_compared_bytes, watch };
    let mut walk = Walk {
        compare,
        options,
        found: PathDiff::default(),
        path: Vec::new(),
        pending: Vec::new(),
        pending_bytes: 0,
        seen_old: HashSet::new(),
        seen_new: HashSet::new(),
        entries: 0,
    };
    walk.run()?;
    let mut found = walk.found;
    found.added.sort_unstable();
    found.modified.sort_unstable();
    found.removed.sort_unstable();
    Ok(found)
}

struct Walk<'s, 'a, O: ?Sized, N: ?Sized> {
    compare: Compare<'s, 'a, O, N>,
    options: &'s DiffOptions<'a>,
    found: PathDiff,
    /// The path of the current directory. There is one buffer for all, since deep trees have paths of megabytes.
    path: Vec<u8>,
    pending: Vec<Pending>,
    pending_bytes: usize,
    /// The directories already visited in each tree: a repeated one would make the walk loop.
    seen_old: HashSet<u32>,
    seen_new: HashSet<u32>,
    entries: u64,
}

/// A directory that is still to be compared, after those pushed later.
struct Pending {
    directory: Directory,
    /// The length of the parent's path.
    parent: usize,
    name: Box<[u8]>,
}

#[derive(Clone, Copy)]
enum Directory {
    Both { old: u32, new: u32 },
    Old(u32),
    New(u32),
}

#[derive(Clone, Copy)]
enum List {
    Added,
    Modified,
    Removed,
}

impl<O: ReadAt + ?Sized, N: ReadAt + ?Sized> Walk<'_, '_, O, N> {
    fn run(&mut self) -> Result<(), DiffError> {
        let (old, new) = (ROOT_INODE, ROOT_INODE);
        if let Some((old, new)) = self.compare.sides.different(old, new)?
            && self.compare.is_modified(&old, &new)
        {
            self.list(List::Modified, b"/", &new);
        }
        self.wait(b"", Directory::Both { old, new })?;
        while let Some(next) = self.pending.pop() {
            self.pending_bytes -= next.name.len() + PENDING_OVERHEAD;
            self.path.truncate(next.parent);
            if !next.name.is_empty() {
                self.path.push(b'/');
                self.path.extend_from_slice(&next.name);
            }
            match next.directory {
                Directory::Both { old, new } => self.both(old, new)?,
                Directory::Old(old) => self.only_old(old)?,
                Directory::New(new) => self.only_new(new)?,
            }
        }
        Ok(())
    }

    fn both(&mut self, old: u32, new: u32) -> Result<(), DiffError> {
        let (old_entries, new_entries) = self.compare.sides.entries(old, new)?;
        self.spend(&old_entries)?;
        let Some(new_entries) = new_entries else {
            for entry in old_entries.iter() {
                self.pair(entry, entry)?;
            }
            return Ok(());
        };
        self.spend(&new_entries)?;
        let (mut old, mut new) = (old_entries.iter().peekable(), new_entries.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(old), Some(new)) => old.name.cmp(new.name),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Ok(()),
            };
            let old = if order.is_le() { old.next() } else { None };
            let new = if order.is_ge() { new.next() } else { None };
            match (old, new) {
                (Some(old), Some(new)) => self.pair(old, new)?,
                (Some(old), None) => self.removed(old)?,
                (None, Some(new)) => self.added(new)?,
                (None, None) => return Ok(()),
            }
        }
    }

    /// Compares an entry that is in both directories.
    fn pair(&mut self, old: Entry<'_>, new: Entry<'_>) -> Result<(), DiffError> {
        self.compare.watch.check()?;
        if self.is_left_out(old.name) {
            return Ok(());
        }
        let Some((old_inode, new_inode)) = self.compare.sides.different(old.inode, new.inode)? else {
            let inode = self.compare.sides.old.inode(old.inode).map_err(DiffError::Old)?;
            match inode.kind() {
                Kind::Directory => self.wait(old.name, Directory::Both { old: old.inode, new: new.inode })?,
                // A second write within a tick of the clock leaves no trace in the inode.
                Kind::File
                    if self.compare.sides.tells_sharing() && self.compare.content_differs(&inode, &inode) =>
                {
                    self.list(List::Modified, new.name, &inode);
                }
                Kind::File
                | Kind::Symlink
                | Kind::CharacterDevice
                | Kind::BlockDevice
                | Kind::Pipe
                | Kind::Socket => {}
            }
            return Ok(());
        };
        if self.compare.is_modified(&old_inode, &new_inode) {
            self.list(List::Modified, new.name, &new_inode);
        }
        match (old_inode.kind() == Kind::Directory, new_inode.kind() == Kind::Directory) {
            (true, true) => self.wait(new.name, Directory::Both { old: old.inode, new: new.inode }),
            (true, false) => self.wait(old.name, Directory::Old(old.inode)),
            (false, true) => self.wait(new.name, Directory::New(new.inode)),
            (false, false) => Ok(()),
        }
    }

    fn only_old(&mut self, number: u32) -> Result<(), DiffError> {
        let files = &self.compare.sides.old;
        let entries = files.inode(number).and_then(|inode| files.entries(&inode)).map_err(DiffError::Old)?;
        self.spend(&entries)?;
        entries.iter().try_for_each(|entry| self.removed(entry))
    }

    fn only_new(&mut self, number: u32) -> Result<(), DiffError> {
        let files = &self.compare.sides.new;
        let entries = files.inode(number).and_then(|inode| files.entries(&inode)).map_err(DiffError::New)?;
        self.spend(&entries)?;
        entries.iter().try_for_each(|entry| self.added(entry))
    }

    fn removed(&mut self, entry: Entry<'_>) -> Result<(), DiffError> {
        self.compare.watch.check()?;
        if self.is_left_out(entry.name) {
            return Ok(());
        }
        let inode = self.compare.sides.old.inode(entry.inode).map_err(DiffError::Old)?;
        self.list(List::Removed, entry.name, &inode);
        if inode.kind() == Kind::Directory {
            self.wait(entry.name, Directory::Old(entry.inode))?;
        }
        Ok(())
    }

    fn added(&mut self, entry: Entry<'_>) -> Result<(), DiffError> {
        self.compare.watch.check()?;
        if self.is_left_out(entry.name) {
            return Ok(());
        }
        let inode = self.compare.sides.new.inode(entry.inode).map_err(DiffError::New)?;
        self.list(List::Added, entry.name, &inode);
        if inode.kind() == Kind::Directory {
            self.wait(entry.name, Directory::New(entry.inode))?;
        }
        Ok(())
    }

    fn is_left_out(&self, name: &[u8]) -> bool {
        self.path.is_empty() && name == &LOST_AND_FOUND[1..]
    }

    /// Counts a path in the current directory, and lists it if the list is not full.
    fn list(&mut self, list: List, name: &[u8], inode: &Inode) {
        let found = &mut self.found;
        let (paths, count) = match list {
            List::Added => (&mut found.added, &mut found.counts.added),
            List::Modified => (&mut found.modified, &mut found.counts.modified),
            List::Removed => (&mut found.removed, &mut found.counts.removed),
        };
        *count += 1;
        if paths.len() >= self.options.max_paths || self.path.len() + 1 + name.len() > MAX_PATH {
            found.truncated = true;
            return;
        }
        let path = if name == b"/" { name.to_vec() } else { [&self.path, b"/".as_slice(), name].concat() };
        paths.push(ChangedPath { path, kind: inode.kind(), size: inode.size() });
    }

    fn wait(&mut self, name: &[u8], directory: Directory) -> Result<(), DiffError> {
        let (old, new) = match directory {
            Directory::Both { old, new } => (Some(old), Some(new)),
            Directory::Old(old) => (Some(old), None),
            Directory::New(new) => (None, Some(new)),
        };
        if let Some(number) = old.filter(|&old| !self.seen_old.insert(old)) {
            return Err(DiffError::Old(Ext4Error::DirectoryTwice { number }));
        }
        if let Some(number) = new.filter(|&new| !self.seen_new.insert(new)) {
            return Err(DiffError::New(Ext4Error::DirectoryTwice { number }));
        }
        self.pending_bytes += name.len() + PENDING_OVERHEAD;
        if self.pending_bytes > MAX_PENDING {
            return Err(DiffError::TooManyPending);
        }
        self.pending.push(Pending { directory, parent: self.path.len(), name: name.into() });
        Ok(())
    }

    /// Subtracts the entries that were read from the limit, and checks whether to continue.
    fn spend(&mut self, entries: &Entries) -> Result<(), DiffError> {
        self.compare.watch.check()?;
        self.entries += entries.len() as u64 + entries.blocks();
        match self.entries <= self.options.max_entries {
            true => Ok(()),
            false => Err(DiffError::TooManyEntries(self.options.max_entries)),
        }
    }
}
