//! Entering the jail: the steps that a child takes before it runs its program.
//!
//! The code runs in a copy of a process with many threads, of which only this one is left: it may neither allocate nor
//! take a lock, and libc's functions that apply a change to all threads (such as `setuid`) do not work. So it only
//! makes system calls with values that [`Prepared`] holds.

use std::ffi::CStr;
use std::ptr;

use super::cell::{Mount, Prepared, View};
use super::failure::{Failed, Step};
use super::filter::Filter;
use super::kind::Jail;

/// Open files. A VM has two descriptors for each layer of its disk, and a few more.
const FILES: u64 = 4096;

/// Threads per user: processors of a large guest, and up to 64 that read and write disks.
const THREADS: u64 = 1024;

/// Memory of a helper program. `qemu-img` needs a small part of it for tables of the largest disk.
pub(crate) const HELPER_DATA: u64 = 2 << 30;

/// Address space of a helper program: its threads reserve more of it than they use.
const HELPER_SPACE: u64 = 16 << 30;

/// Limits of the jail's root directory, which holds only the names of what is shown in it.
const ROOT_OPTIONS: &CStr = c"mode=0755,size=1m,nr_inodes=4096";

/// Limits of a scratch directory, in which a program writes a file with its process id.
const SCRATCH_OPTIONS: &CStr = c"mode=0700,size=64k,nr_inodes=16";

/// The directory on which the new root is mounted while it is assembled. Every host has it, and the parts of it that
/// are shown were opened before.
const ASSEMBLY_DIR: &CStr = c"/usr";

const HOST_NAME: &[u8] = b"jail";

/// Files that the program makes are for its own user only.
const PRIVATE: libc::mode_t = 0o077;

// From <linux/mount.h>.
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const MOUNT_ATTR_NOEXEC: u64 = 8;

/// More capabilities than their sets will ever have numbers for.
const CAPABILITIES: libc::c_int = 64;

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

type Done = Result<(), Failed>;

/// Puts the calling process into the jail. Only the shown paths and the descriptors of the host remain.
pub(crate) fn enter(prepared: &mut Prepared) -> Done {
    match prepared.jail {
        Jail::None => {
            limit(prepared)?;
            return no_new_privileges();
        }
        Jail::Landlock => {
            limit(prepared)?;
            match drop_bounding_set() {
                // An ordinary user has none of these capabilities and may not drop them from the bounding set.
                Err(Failed(_, libc::EPERM)) | Ok(()) => {}
                Err(failed) => return Err(failed),
            }
        }
        Jail::Users => {
            change_root(prepared)?;
            limit(prepared)?;
            drop_bounding_set()?;
            become_user(prepared.uid)?;
        }
        Jail::UserNamespace => {
            map_user(prepared)?;
            change_root(prepared)?;
            limit(prepared)?;
            drop_bounding_set()?;
        }
    }
    drop_capabilities()?;
    no_new_privileges()?;
    if let Some(rules) = &prepared.rules {
        rules.apply()?;
    }
    prepared.filter.as_mut().map_or(Ok(()), Filter::apply)
}

/// Converts the result of a system call.
pub(super) fn check(step: Step, result: libc::c_long) -> Result<libc::c_long, Failed> {
    match result {
        // SAFETY: errno is this thread's own.
        -1 => Err(Failed(step, unsafe { *libc::__errno_location() })),
        result => Ok(result),
    }
}

fn write_file(path: &CStr, content: &[u8]) -> Done {
    // SAFETY: the path ends with NUL, and the buffer is as long as it is said to be.
    unsafe {
        let fd =
            check(Step::Maps, libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC).into())? as i32;
        let written = libc::write(fd, content.as_ptr().cast(), content.len());
        let done = check(Step::Maps, written as libc::c_long).map(drop);
        libc::close(fd);
        done
    }
}

fn map_user(prepared: &Prepared) -> Done {
    // The kernel requires this before an unprivileged process may map its group.
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", &prepared.uid_map)?;
    write_file(c"/proc/self/gid_map", &prepared.gid_map)
}

fn change_root(prepared: &mut Prepared) -> Done {
    let none = ptr::null::<libc::c_char>();
    // SAFETY: all paths end with NUL and outlive the calls; what is null may be.
    unsafe {
        // The program's user must be able to enter the directories of the root, whatever umask the daemon has.
        libc::umask(0);
        // Mounts made here do not propagate to the host.
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(Step::Private, libc::mount(none, c"/".as_ptr(), none, private, ptr::null()).into())?;
        for (mount, fd) in prepared.mounts.iter().zip(prepared.opened.iter_mut()) {
            *fd = open_tree(mount)?;
        }
        let plain = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let tmpfs = c"tmpfs".as_ptr();
        let options = ROOT_OPTIONS.as_ptr().cast();
        check(Step::Root, libc::mount(tmpfs, ASSEMBLY_DIR.as_ptr(), tmpfs, plain, options).into())?;
        check(Step::Root, libc::chdir(ASSEMBLY_DIR.as_ptr()).into())?;
        for (to, link) in &prepared.links {
            check(Step::Root, libc::symlink(to.as_ptr(), link.as_ptr()).into())?;
        }
        for dir in &prepared.dirs {
            make_dir(dir)?;
        }
        for (mount, fd) in prepared.mounts.iter().zip(&prepared.opened) {
            place(mount, *fd)?;
        }
        for dir in &prepared.scratch {
            make_dir(dir)?;
            let options = SCRATCH_OPTIONS.as_ptr().cast();
            check(Step::Root, libc::mount(tmpfs, dir.as_ptr(), tmpfs, plain, options).into())?;
            if prepared.jail == Jail::Users {
                check(Step::Root, libc::chown(dir.as_ptr(), prepared.uid, prepared.uid).into())?;
            }
        }
        // The old root is briefly stacked on the new one, then detached.
        let here = c".".as_ptr();
        check(Step::Pivot, libc::syscall(libc::SYS_pivot_root, here, here))?;
        check(Step::Pivot, libc::umount2(here, libc::MNT_DETACH).into())?;
        check(Step::Pivot, libc::chdir(c"/".as_ptr()).into())?;
        let frozen = MountAttributes { set: MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
        set_attributes(libc::AT_FDCWD, c"/", 0, &frozen, Step::Pivot)?;
        check(Step::Pivot, libc::sethostname(HOST_NAME.as_ptr().cast(), HOST_NAME.len()).into())?;
        libc::umask(PRIVATE);
    }
    Ok(())
}

/// A private clone of the host's mount at a path.
fn open_tree(mount: &Mount) -> Result<i32, Failed> {
    let flags = OPEN_TREE_CLONE | AT_RECURSIVE | libc::O_CLOEXEC as libc::c_uint;
    // SAFETY: the path ends with NUL.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, mount.source.as_ptr(), flags) };
    let fd = check(Step::Source, fd)? as i32;
    let set = match mount.view {
        View::Program => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        View::ReadOnly => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
        View::Writable => MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
        View::Device => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
    };
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH as libc::c_uint | AT_RECURSIVE;
    set_attributes(fd, c"", flags, &attributes, Step::Source)?;
    Ok(fd)
}

fn set_attributes(
    fd: i32,
    path: &CStr,
    flags: libc::c_uint,
    attributes: &MountAttributes,
    step: Step,
) -> Done {
    let (pointer, size) = (ptr::from_ref(attributes), size_of::<MountAttributes>());
    // SAFETY: the path ends with NUL, and the attributes are of the size that is said.
    let done = unsafe { libc::syscall(libc::SYS_mount_setattr, fd, path.as_ptr(), flags, pointer, size) };
    check(step, done).map(drop)
}

fn make_dir(dir: &CStr) -> Done {
    // SAFETY: the path ends with NUL.
    match check(Step::Place, unsafe { libc::mkdir(dir.as_ptr(), 0o755) }.into()) {
        Err(Failed(_, libc::EEXIST)) | Ok(_) => Ok(()),
        Err(failed) => Err(failed),
    }
}

fn place(mount: &Mount, fd: i32) -> Done {
    let target = mount.target.as_ptr();
    match mount.is_dir {
        true => make_dir(&mount.target)?,
        false => {
            // SAFETY: the path ends with NUL; the descriptor is closed at once.
            unsafe {
                let made = libc::open(target, libc::O_CREAT | libc::O_RDONLY | libc::O_CLOEXEC, 0o444);
                match check(Step::Place, made.into()) {
                    Ok(made) => drop(libc::close(made as i32)),
                    // The target already exists in a directory that is shown; the mount covers it.
                    Err(Failed(_, libc::EROFS | libc::EACCES)) => {}
                    Err(failed) => return Err(failed),
                }
            }
        }
    }
    // SAFETY: all paths end with NUL; the descriptor is a mount that is nowhere yet.
    unsafe {
        let here = libc::AT_FDCWD;
        let moved =
            libc::syscall(libc::SYS_move_mount, fd, c"".as_ptr(), here, target, MOVE_MOUNT_F_EMPTY_PATH);
        check(Step::Place, moved)?;
        libc::close(fd);
    }
    Ok(())
}

fn limit(prepared: &Prepared) -> Done {
    let set = |resource: libc::__rlimit_resource_t, limit: u64| {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: the limit is read, and the process is this one.
        let done = unsafe {
            libc::syscall(
                libc::SYS_prlimit64,
                0,
                resource,
                ptr::from_ref(&limit),
                ptr::null_mut::<libc::rlimit>(),
            )
        };
        check(Step::Limits, done).map(drop)
    };
    let lower = |resource, limit| match set(resource, limit) {
        // The host allows less than that already.
        Err(Failed(_, libc::EPERM)) | Ok(()) => Ok(()),
        Err(failed) => Err(failed),
    };
    // A guest's memory must not end up in a core file.
    set(libc::RLIMIT_CORE, 0)?;
    if let Some(file_bytes) = prepared.file_bytes {
        lower(libc::RLIMIT_FSIZE, file_bytes)?;
        lower(libc::RLIMIT_DATA, HELPER_DATA)?;
        lower(libc::RLIMIT_AS, HELPER_SPACE)?;
    }
    match prepared.jail {
        Jail::None => return Ok(()),
        // The kernel counts threads per user, and only this jail has a user of its own.
        Jail::Users => lower(libc::RLIMIT_NPROC, THREADS)?,
        Jail::UserNamespace | Jail::Landlock => {}
    }
    set(libc::RLIMIT_MSGQUEUE, 0)?;
    lower(libc::RLIMIT_NOFILE, FILES)
}

fn drop_bounding_set() -> Done {
    for capability in 0..CAPABILITIES {
        // SAFETY: takes no pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match check(Step::Privileges, dropped.into()) {
            // The kernel has no capabilities beyond this number.
            Err(Failed(_, libc::EINVAL)) => break,
            Err(failed) => return Err(failed),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn become_user(uid: u32) -> Done {
    // SAFETY: no groups are read, and the other calls take no pointers.
    unsafe {
        check(Step::User, libc::syscall(libc::SYS_setgroups, 0, ptr::null::<libc::gid_t>()))?;
        check(Step::User, libc::syscall(libc::SYS_setresgid, uid, uid, uid))?;
        check(Step::User, libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

fn drop_capabilities() -> Done {
    let header = [CAPABILITY_VERSION_3, 0];
    let none = [0_u32; 6];
    // SAFETY: the kernel reads a header of two words and two sets of three.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    check(Step::Privileges, done)?;
    // SAFETY: takes no pointers.
    let done = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    check(Step::Privileges, done.into()).map(drop)
}

/// Ensures that no program it starts has more rights than it has itself.
fn no_new_privileges() -> Done {
    // SAFETY: takes no pointers.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    check(Step::Privileges, done.into()).map(drop)
}
