//! Kernel modules: finds those that the agent wants in a tree, decompresses them and sorts them by dependency.
//!
//! Dependencies are read from the modules themselves (their `.modinfo` section): packages come without modules.dep,
//! which depmod would write on the system where they are installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use agentiso_sys::files::{FileContext, FileError};
use thiserror::Error;

use crate::decompress;

/// Modules that the agent loads if the kernel does not have them built in. Their dependencies are added automatically.
const WANTED: [&str; 5] = ["virtio_mmio", "virtio_blk", "virtio_net", "vsock", "vmw_vsock_virtio_transport"];
/// The largest of these modules has some 300 KiB.
const MAX_MODULE_BYTES: u64 = 32 << 20;
/// Deeper than any module tree; ends loops of symbolic links to directories.
const MAX_DEPTH: usize = 24;

#[derive(Debug, Error)]
pub enum ModuleError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error("the kernel module {name} is larger than {MAX_MODULE_BYTES} bytes")]
    TooLarge { name: String },
    #[error("the kernel module {name} needs {missing}, which is neither built in nor in {dir}")]
    Missing { name: String, missing: String, dir: PathBuf },
    #[error("the kernel modules {names:?} depend on each other in a circle")]
    Circle { names: Vec<String> },
}

/// A decompressed module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// With underscores, as in the kernel.
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) depends: Vec<String>,
}

impl Module {
    fn parse(name: String, data: Vec<u8>) -> Self {
        let depends = depends_of(&data);
        Self { name, data, depends }
    }

    pub(crate) fn file_name(&self) -> String {
        format!("{}.ko", self.name)
    }
}

/// The wanted modules found under `dir`, each after those it depends on.
pub(crate) fn collect(dir: &Path) -> Result<Vec<Module>, ModuleError> {
    let mut files = BTreeMap::new();
    let mut built_in = BTreeSet::new();
    index(dir, 0, &mut files, &mut built_in)?;
    let mut found = BTreeMap::new();
    let mut queue: Vec<String> =
        WANTED.iter().filter(|name| files.contains_key(**name)).map(|name| (*name).to_owned()).collect();
    while let Some(name) = queue.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let Some(path) = files.get(&name) else { continue };
        let module = Module::parse(name.clone(), load(&name, path)?);
        for dependency in &module.depends {
            if !files.contains_key(dependency) && !built_in.contains(dependency) {
                let (missing, dir) = (dependency.clone(), dir.to_owned());
                return Err(ModuleError::Missing { name, missing, dir });
            }
            queue.push(dependency.clone());
        }
        found.insert(name, module);
    }
    order(found)
}

/// Sorts by dependency; otherwise by the order of the list of wanted modules, then by name, so that the result is
/// stable.
fn order(mut waiting: BTreeMap<String, Module>) -> Result<Vec<Module>, ModuleError> {
    let rank = |name: &str| WANTED.iter().position(|wanted| *wanted == name).unwrap_or(WANTED.len());
    let mut ordered: Vec<Module> = Vec::new();
    while !waiting.is_empty() {
        let ready = waiting
            .values()
            .filter(|module| !module.depends.iter().any(|name| waiting.contains_key(name)))
            .min_by_key(|module| (rank(&module.name), module.name.clone()))
            .map(|module| module.name.clone());
        match ready.and_then(|name| waiting.remove(&name)) {
            Some(module) => ordered.push(module),
            None => return Err(ModuleError::Circle { names: waiting.into_keys().collect() }),
        }
    }
    Ok(ordered)
}

/// The modules that a module depends on.
pub(crate) fn depends_of(module: &[u8]) -> Vec<String> {
    let list = modinfo(module, "depends").unwrap_or_default();
    list.split(',').filter(|name| !name.is_empty()).map(canonical).collect()
}

fn canonical(name: &str) -> String {
    name.trim().replace('-', "_")
}

fn index(
    dir: &Path,
    depth: usize,
    files: &mut BTreeMap<String, PathBuf>,
    built_in: &mut BTreeSet<String>,
) -> Result<(), FileError> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    let mut entries: Vec<_> =
        fs::read_dir(dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).at("list", dir)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().at("inspect", &path)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            index(&path, depth + 1, files, built_in)?;
        } else if name == "modules.builtin" {
            let text = fs::read_to_string(&path).at("read", &path)?;
            built_in.extend(text.lines().filter_map(|line| line.rsplit('/').next()).filter_map(module_name));
        } else if let Some(module) = module_name(&name) {
            files.entry(module).or_insert(path);
        }
    }
    Ok(())
}

/// `virtio-rng.ko.xz` is the module `virtio_rng`.
fn module_name(file: &str) -> Option<String> {
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter().find_map(|suffix| file.strip_suffix(suffix))?;
    Some(canonical(stem))
}

fn load(name: &str, path: &Path) -> Result<Vec<u8>, ModuleError> {
    let mut data = Vec::new();
    fs::File::open(path)
        .and_then(decompress::reader)
        .and_then(|reader| reader.take(MAX_MODULE_BYTES + 1).read_to_end(&mut data))
        .at("read", path)?;
    if data.len() as u64 > MAX_MODULE_BYTES {
        return Err(ModuleError::TooLarge { name: name.to_owned() });
    }
    Ok(data)
}

/// A value of the `.modinfo` section, which is a run of NUL-terminated `name=value` strings.
pub(crate) fn modinfo(module: &[u8], field: &str) -> Option<String> {
    module.split(|byte| *byte == 0).find_map(|text| {
        let value = text.strip_prefix(field.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok().map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &Path, name: &str, depends: &str) {
        fs::write(dir.join(name), format!("\x7fELF\0license=GPL\0depends={depends}\0vermagic=6.1 SMP\0"))
            .unwrap();
    }

    #[test]
    fn module_dependencies_come_first() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("net")).unwrap();
        put(&dir.path().join("net"), "virtio_net.ko", "net_failover,virtio");
        put(&dir.path().join("net"), "net-failover.ko", "failover");
        put(dir.path(), "failover.ko", "");
        put(dir.path(), "virtio_blk.ko", "");
        put(dir.path(), "floppy.ko", "");
        fs::write(dir.path().join("modules.builtin"), "kernel/drivers/virtio/virtio.ko\n").unwrap();
        let names: Vec<_> = collect(dir.path()).unwrap().into_iter().map(|module| module.name).collect();
        assert_eq!(names, ["virtio_blk", "failover", "net_failover", "virtio_net"]);
    }

    #[test]
    fn compressed_modules_are_decompressed() {
        let dir = tempfile::tempdir().unwrap();
        let plain = b"\x7fELF\0depends=\0";
        fs::write(dir.path().join("virtio_blk.ko.zst"), zstd::encode_all(&plain[..], 1).unwrap()).unwrap();
        assert_eq!(collect(dir.path()).unwrap()[0].data, plain);
    }

    #[test]
    fn missing_module_dependency_is_named() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "virtio_net.ko", "gone");
        assert!(collect(dir.path()).unwrap_err().to_string().contains("needs gone"));
    }

    #[test]
    fn circular_module_dependency_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "virtio_net.ko", "vsock");
        put(dir.path(), "vsock.ko", "virtio_net");
        assert!(matches!(collect(dir.path()), Err(ModuleError::Circle { .. })));
    }
}
