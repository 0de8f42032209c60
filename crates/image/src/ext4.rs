//! Turns a stage into an ext4 image with e2fsprogs: mke2fs copies the tree, debugfs corrects owners and modes, e2fsck
//! checks the result. Needs no mount and no root.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_sys::command::{CommandError, Tool};
use agentiso_sys::files::{FileContext, FileError};
use thiserror::Error;

use crate::stage::{Correction, Survey};

const PACKAGE: &str = "e2fsprogs";
/// For some hundred thousand small files on a slow disk.
const LIMIT: Duration = Duration::from_secs(1800);
const GIB: u64 = 1 << 30;
const BLOCK: u64 = 4096;
/// Free space in the base image beyond a quarter of its contents, for images that are used as they are.
const SLACK: u64 = 256 << 20;
/// The size to which the filesystem can grow while mounted. Growing needs space for group descriptors that is reserved
/// here; half a TiB costs half a MiB.
const MAX_GROWN: u64 = 512 * GIB;
/// One inode per 16 KiB is the default of mke2fs; the image is made large enough for twice the files it starts with.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Small, because every workspace's overlay carries a copy of the blocks its journal touched.
const JOURNAL_MIB: u32 = 16;

#[derive(Debug, Error)]
pub enum Ext4Error {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("debugfs could not set owners in {image}:\n{messages}")]
    NotCorrected { image: PathBuf, messages: String },
}

/// The size of the disk for these contents: whole GiB, with slack.
pub(crate) fn disk_size(survey: &Survey) -> u64 {
    let by_bytes = survey.bytes + survey.bytes / 4 + SLACK;
    let by_inodes = survey.inodes * 2 * BYTES_PER_INODE;
    by_bytes.max(by_inodes).div_ceil(GIB) * GIB
}

/// Writes the tree at `stage` as a filesystem into the new file `image`. `work` takes helper files.
pub(crate) async fn write(
    image: &Path,
    stage: &Path,
    survey: &Survey,
    uuid: &str,
    epoch: i64,
    work: &Path,
) -> Result<u64, Ext4Error> {
    let size = disk_size(survey);
    File::create_new(image).and_then(|file| file.set_len(size)).at("create", image)?;
    Tool::new("mke2fs", PACKAGE, LIMIT)
        .args(mke2fs_args(image, stage, uuid))
        .env("E2FSPROGS_FAKE_TIME", epoch.to_string())
        .env("MKE2FS_CONFIG", "/dev/null")
        .run()
        .await?;
    correct(image, &survey.corrections, epoch, work).await?;
    Tool::new("e2fsck", PACKAGE, LIMIT).args(["-f".as_ref(), "-n".as_ref(), image.as_os_str()]).run().await?;
    Ok(size)
}

/// The arguments of mke2fs.
fn mke2fs_args(image: &Path, stage: &Path, uuid: &str) -> Vec<OsString> {
    // Inode tables are zeroed here (they stay holes in the image), or every guest would zero them in its own overlay.
    let extended = format!(
        "resize={},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,hash_seed={uuid},nodiscard",
        MAX_GROWN / BLOCK
    );
    let mut args: Vec<OsString> = Vec::new();
    for arg in ["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-L", "agentiso"] {
        args.push(arg.into());
    }
    // Stated explicitly, because the defaults come from a configuration file that differs between distributions.
    args.push("-O".into());
    args.push(
        "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize,resize_inode,dir_index,filetype,\
         sparse_super,large_file,ext_attr"
            .into(),
    );
    // No blocks reserved for root: everything in the guest runs as root.
    for arg in ["-m", "0", "-i", &BYTES_PER_INODE.to_string(), "-J", &format!("size={JOURNAL_MIB}")] {
        args.push(arg.into());
    }
    for arg in ["-U", uuid, "-E", &extended, "-d"] {
        args.push(arg.into());
    }
    args.push(stage.into());
    args.push(image.into());
    args
}

async fn correct(image: &Path, corrections: &[Correction], epoch: i64, work: &Path) -> Result<(), Ext4Error> {
    if corrections.is_empty() {
        return Ok(());
    }
    let values = work.join("xattrs");
    fs::create_dir_all(&values).at("create", &values)?;
    let (script, blobs) = debugfs_script(corrections, epoch, &values);
    for (path, data) in blobs {
        fs::write(&path, data).at("write", &path)?;
    }
    let script_path = work.join("debugfs.script");
    fs::write(&script_path, script).at("write", &script_path)?;
    let output = Tool::new("debugfs", PACKAGE, LIMIT)
        .args(["-w".as_ref(), "-f".as_ref(), script_path.as_os_str(), image.as_os_str()])
        .run()
        .await?;
    // debugfs goes on after an error and may still report success; everything but its banner is an error message.
    let messages: Vec<_> = output.stderr.lines().filter(|line| !line.starts_with("debugfs ")).collect();
    if messages.is_empty() {
        Ok(())
    } else {
        Err(Ext4Error::NotCorrected { image: image.to_owned(), messages: messages.join("\n") })
    }
}

/// A script for `debugfs -f`, and the files with attribute values that it refers to.
fn debugfs_script(
    corrections: &[Correction],
    epoch: i64,
    values: &Path,
) -> (Vec<u8>, Vec<(PathBuf, Vec<u8>)>) {
    let mut script = format!("set_current_time @{epoch}\n").into_bytes();
    let mut blobs = Vec::new();
    for correction in corrections {
        let path = quoted(correction.path.as_os_str().as_bytes());
        let mut set = |field: &str, value: String| {
            script.extend_from_slice(b"set_inode_field ");
            script.extend_from_slice(&path);
            script.extend_from_slice(format!(" {field} {value}\n").as_bytes());
        };
        if let Some(uid) = correction.uid {
            set("uid", uid.to_string());
        }
        if let Some(gid) = correction.gid {
            set("gid", gid.to_string());
        }
        if let Some(mode) = correction.mode {
            set("mode", format!("0{mode:o}"));
        }
        for (name, value) in &correction.xattrs {
            let mut blob = String::new();
            // Writing to a String cannot fail.
            let _ = write!(blob, "{:06}", blobs.len());
            let blob = values.join(blob);
            script.extend_from_slice(b"ea_set -f ");
            script.extend_from_slice(&quoted(blob.as_os_str().as_bytes()));
            script.push(b' ');
            script.extend_from_slice(&path);
            script.push(b' ');
            script.extend_from_slice(&quoted(name.as_bytes()));
            script.push(b'\n');
            blobs.push((blob, value.clone()));
        }
    }
    (script, blobs)
}

/// debugfs takes words in double quotes, in which quotes are doubled. Control characters cannot occur: the stage
/// refuses them.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut result = vec![b'"'];
    for byte in text {
        if *byte == b'"' {
            result.push(b'"');
        }
        result.push(*byte);
    }
    result.push(b'"');
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_size_has_whole_gibibytes_and_room() {
        let survey = |bytes, inodes| Survey { corrections: Vec::new(), inodes, bytes };
        assert_eq!(disk_size(&survey(0, 0)), GIB);
        assert_eq!(disk_size(&survey(600 << 20, 1000)), GIB);
        assert_eq!(disk_size(&survey(700 << 20, 1000)), 2 * GIB);
        assert_eq!(disk_size(&survey(600 << 20, 100_000)), 4 * GIB);
    }

    #[test]
    fn corrections_become_a_debugfs_script() {
        let corrections = [Correction {
            path: "/a \"b\"".into(),
            uid: Some(0),
            gid: None,
            mode: Some(0o104755),
            xattrs: vec![("security.capability".into(), vec![1, 2])],
        }];
        let (script, blobs) = debugfs_script(&corrections, 7, Path::new("/w"));
        assert_eq!(
            String::from_utf8(script).unwrap(),
            "set_current_time @7\n\
             set_inode_field \"/a \"\"b\"\"\" uid 0\n\
             set_inode_field \"/a \"\"b\"\"\" mode 0104755\n\
             ea_set -f \"/w/000000\" \"/a \"\"b\"\"\" \"security.capability\"\n"
        );
        assert_eq!(blobs, [(PathBuf::from("/w/000000"), vec![1, 2])]);
    }

    #[test]
    fn mke2fs_arguments_are_as_agreed() {
        let args = mke2fs_args(Path::new("/i"), Path::new("/s"), "u-u-i-d");
        let text = args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            text,
            "-q -F -t ext4 -b 4096 -I 256 -L agentiso -O has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,\
             dir_nlink,extra_isize,resize_inode,dir_index,filetype,sparse_super,large_file,ext_attr -m 0 -i 16384 \
             -J size=16 -U u-u-i-d -E resize=134217728,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,\
             hash_seed=u-u-i-d,nodiscard -d /s /i"
        );
    }
}
