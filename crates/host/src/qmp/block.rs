//! Changes the layers of a running VM's disk: adds an overlay on top, or merges a layer into the one below.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_disk::qcow2_header::reserve_header;
use agentiso_disk::{Keyframe, LayerName, Merge};
use agentiso_sys::files::FileError;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::client::{QmpClient, QmpError};
use super::fdset::{Access, open};
use crate::qemu::argv::{DISK_DEVICE, file_node, frozen_node, layer_note, qcow2_node};

/// The job name of a merge; one runs at a time.
const JOB: &str = "merge";

/// A cancelled merge ends with the request in progress.
const CANCEL_DEADLINE: Duration = Duration::from_secs(20);

/// The prefix of the nodes that we name.
const OURS: &str = "d-";

/// The node of a layer that we open. Node names begin with a letter and have at most 31 characters, including the name
/// of the file node below.
pub(crate) fn node_name(layer: &Path) -> String {
    let name = layer.file_stem().unwrap_or_default().to_string_lossy();
    format!("{OURS}{name}").chars().take(26).collect()
}

/// A file that QEMU has open as part of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskNode {
    pub node: String,
    pub file: PathBuf,
}

/// Allocates disk space for the headers of layers. At the end of a merge QEMU rewrites them, and (10.0.2) crashes if
/// there is no space.
fn make_room(layers: &[PathBuf]) -> Result<(), FileError> {
    layers.iter().try_for_each(|layer| {
        let file = open(layer, Access::ReadWrite)?;
        reserve_header(&file).map_err(FileError::at("reserve room in", layer))
    })
}

impl QmpClient {
    /// The node that the guest writes to, of a disk whose files are in `dir`. The time does not depend on the number of
    /// layers.
    pub(crate) async fn disk_head(&self, dir: &Path) -> Result<DiskNode, QmpError> {
        let arguments = json!({"path": format!("/machine/peripheral/{DISK_DEVICE}"), "property": "drive"});
        let drive = self.execute("qom-get", Some(arguments)).await?;
        let found = drive.as_str().and_then(|node| Some((node, file_of(node, dir)?)));
        let (node, file) = found.ok_or_else(|| unexpected("qom-get"))?;
        Ok(DiskNode { node: node.to_owned(), file })
    }

    /// Every open layer in `dir`, the head included. Slow if there are many.
    pub async fn disk_nodes(&self, dir: &Path) -> Result<Vec<DiskNode>, QmpError> {
        let nodes = self.execute("query-named-block-nodes", Some(json!({"flat": true}))).await?;
        let nodes = nodes.as_array().ok_or_else(|| unexpected("query-named-block-nodes"))?;
        Ok(nodes
            .iter()
            .filter(|node| node["drv"] == "qcow2")
            .filter_map(|node| disk_node(node, dir))
            .collect())
    }

    /// Opens an overlay that is not yet part of the disk.
    pub(crate) async fn open_overlay(&self, node: &str, file: &Path) -> Result<(), QmpError> {
        let given = self.give_layer(file, Access::ReadWrite).await?;
        // The layers below it are open already; the pivot connects them.
        let opened = self.execute("blockdev-add", Some(qcow2_node(node, given.set, Value::Null))).await;
        if opened.is_err() {
            self.take_back(given).await?;
        }
        opened.map(drop)
    }

    /// Closes a layer that is not part of the disk, in `dir`.
    pub(crate) async fn close_overlay(&self, node: &str, dir: &Path) -> Result<(), QmpError> {
        self.execute("blockdev-del", Some(json!({"node-name": node}))).await?;
        match file_of(node, dir) {
            Some(file) => self.take_layer_back(&file).await,
            None => Ok(()),
        }
    }

    /// Layers in `dir` that QEMU can write to, although the guest writes to the head only.
    pub(crate) async fn written_below_head(&self, dir: &Path) -> Result<Vec<PathBuf>, QmpError> {
        let head = self.disk_head(dir).await?.file;
        let notes = self.notes().await?;
        // Uses the names in the directory, not those that QEMU reports: QEMU may have been taken over.
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let layers = entries.map(|entry| entry.path()).filter(|path| *path != head);
        let own = layers.filter(|path| LayerName::of(path).is_some_and(|layer| layer.is_own()));
        Ok(own.filter(|layer| notes.contains(&layer_note(layer, true))).collect())
    }

    /// Makes a layer read-only for QEMU after the guest has stopped writing to it. `below` is the layer under it.
    pub async fn freeze(&self, layer: &Path, below: Option<&Path>) -> Result<(), QmpError> {
        let Some(written) = self.find_by_note(&layer_note(layer, true)).await? else { return Ok(()) };
        let node = node_name(layer);
        let read =
            self.give(open(layer, Access::Read)?, Some(written.set), &layer_note(layer, false)).await?;
        let below = below.map_or(Value::Null, |below| json!(node_name(below)));
        let mut options = qcow2_node(&node, written.set, below);
        options["file"] = json!(file_node(&node));
        options["read-only"] = json!(true);
        // The file node follows and is reopened with the read-only descriptor. If this were requested by name, it would
        // not become writable again when a layer is merged into it.
        let frozen = self.execute("blockdev-reopen", Some(json!({"options": [options]}))).await;
        self.take_back(if frozen.is_ok() { written } else { read }).await?;
        frozen.map(drop)
    }

    /// Switches the guest's writes to the overlay; the layers written so far stay unchanged.
    pub async fn pivot(&self, head: &str, overlay: &str) -> Result<(), QmpError> {
        self.execute("blockdev-snapshot", Some(json!({"node": head, "overlay": overlay}))).await.map(drop)
    }

    /// Puts the head on a keyframe, which has the same content as the layers it replaces, and closes the layers that
    /// are no longer read.
    pub(crate) async fn put_on(&self, keyframe: &Keyframe) -> Result<(), QmpError> {
        let layer = &keyframe.file;
        let dir = layer.parent().unwrap_or(Path::new("/"));
        let head = self.disk_head(dir).await?;
        let below = node_name(layer);
        let open = self.disk_nodes(dir).await?;
        // If it were opened a second time, nothing could be merged into it.
        let backing = match &keyframe.below {
            None => Value::Null,
            Some(file) => match open.iter().find(|node| node.file == *file) {
                Some(shared) => json!(shared.node),
                None => return Err(merge_failed("QEMU does not list the layer below")),
            },
        };
        let given = self.give_layer(layer, Access::Read).await?;
        if let Err(error) = self.execute("blockdev-add", Some(frozen_node(&below, given.set, backing))).await
        {
            self.take_back(given).await?;
            return Err(error);
        }
        // The set stays the same: nothing changes about its file.
        let mut options = qcow2_node(&head.node, 0, json!(below));
        options["file"] = json!(file_node(&head.node));
        if let Err(error) = self.execute("blockdev-reopen", Some(json!({"options": [options]}))).await {
            self.close_overlay(&below, dir).await?;
            return Err(error);
        }
        let name = layer.file_name().unwrap_or_default().to_string_lossy();
        let header = json!({"device": head.node, "image-node-name": head.node, "backing-file": name});
        self.execute("change-backing-file", Some(header)).await?;
        for file in &keyframe.replaces {
            for node in open.iter().filter(|node| node.file == *file) {
                self.forget_node(&node.node, dir).await?;
            }
        }
        Ok(())
    }

    /// Ends a merge whose initiator no longer waits for it.
    pub(crate) async fn end_merge(&self) -> Result<(), QmpError> {
        let mut events = self.events();
        let running = |jobs: &Value| jobs.as_array().is_some_and(|jobs| !jobs.is_empty());
        if !running(&self.execute("query-block-jobs", None).await?) {
            return self.take_writable_back().await;
        }
        // A merge that has just ended refuses this, which is fine.
        let _ = self.execute("block-job-cancel", Some(json!({"device": JOB, "force": true}))).await;
        let ended = async {
            while running(&self.execute("query-block-jobs", None).await?) {
                if let Err(RecvError::Closed) = events.recv().await {
                    return Err(QmpError::Closed);
                }
            }
            Ok(())
        };
        let ended = tokio::time::timeout(CANCEL_DEADLINE, ended).await;
        ended.unwrap_or_else(|_elapsed| Err(merge_failed("it could not be cancelled")))?;
        self.take_writable_back().await
    }

    /// Makes QEMU report when the head's file grows beyond this length.
    pub(crate) async fn watch_growth(&self, head: &str, length: u64) -> Result<(), QmpError> {
        let arguments = json!({"node-name": file_node(head), "write-threshold": length});
        self.execute("block-set-write-threshold", Some(arguments)).await.map(drop)
    }

    /// Merges a frozen layer into the one below it. Both, and the layers above, are writable for that time.
    pub(crate) async fn commit_layer(
        &self,
        head: &str,
        (layer, into): (&str, &str),
        merge: &Merge,
        deadline: Duration,
    ) -> Result<(), QmpError> {
        let dir = merge.into.parent().unwrap_or(Path::new("/"));
        make_room(&merge.above)?;
        let changed: Vec<&Path> = merge.above.iter().chain([&merge.into]).map(PathBuf::as_path).collect();
        let lent = self.give_writable(&changed).await?;
        let committed = self.commit(head, layer, into, merge, deadline).await;
        // A job that cannot be cancelled keeps its descriptors; the next check of the disk takes them back.
        self.take_all_back(&lent).await?;
        committed?;
        self.forget_node(layer, dir).await
    }

    async fn commit(
        &self,
        head: &str,
        layer: &str,
        into: &str,
        merge: &Merge,
        deadline: Duration,
    ) -> Result<(), QmpError> {
        // The backing file name that the layer above gets.
        let below = merge.into.file_name().unwrap_or_default().to_string_lossy();
        let mut events = self.events();
        let arguments = json!({
            "job-id": JOB, "device": head, "top-node": layer, "base-node": into, "backing-file": below,
        });
        self.execute("block-commit", Some(arguments)).await?;
        let ended = async {
            loop {
                match events.recv().await {
                    Ok(event) if event.data["device"] == JOB => match event.name.as_str() {
                        "BLOCK_JOB_COMPLETED" => {
                            let problem = event.data.get("error").and_then(Value::as_str);
                            return problem.map_or(Ok(()), |reason| Err(merge_failed(reason)));
                        }
                        "BLOCK_JOB_CANCELLED" => return Err(merge_failed("it was cancelled")),
                        _ => {}
                    },
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => {
                        let jobs = self.execute("query-block-jobs", None).await?;
                        if jobs.as_array().is_some_and(Vec::is_empty) {
                            return Err(merge_failed("its result is unknown"));
                        }
                    }
                    Err(RecvError::Closed) => return Err(QmpError::Closed),
                }
            }
        };
        let ended = tokio::select! {
            // A reported end counts even if QEMU exited right after it.
            biased;
            ended = tokio::time::timeout(deadline, ended) => ended,
            () = self.closed() => return Err(QmpError::Closed),
        };
        match ended {
            Ok(ended) => ended,
            Err(_elapsed) => {
                // A partial merge does no harm: the chain has the same content at every moment.
                self.execute("block-job-cancel", Some(json!({"device": JOB, "force": true}))).await?;
                Err(merge_failed("it took too long"))
            }
        }
    }

    /// Closes a layer that is no longer part of the disk. A layer that we opened stays open until then, and QEMU (10.0)
    /// crashes in a later merge if its file is gone by that time.
    pub(crate) async fn forget_node(&self, node: &str, dir: &Path) -> Result<(), QmpError> {
        match self.execute("blockdev-del", Some(json!({"node-name": node}))).await {
            // A layer that the VM started with was closed by the merge.
            Err(QmpError::Refused { .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
        match file_of(node, dir) {
            Some(file) => self.take_layer_back(&file).await,
            None => Ok(()),
        }
    }
}

fn disk_node(value: &Value, dir: &Path) -> Option<DiskNode> {
    let node = value.get("node-name")?.as_str()?.to_owned();
    let file = file_of(&node, dir).or_else(|| file_from_description(value.get("file")?.as_str()?))?;
    Some(DiskNode { node, file })
}

/// QEMU's description of a node that it opened itself: the plain path or, if its backing layer has changed since it was
/// opened, the options for opening it again, including those of all layers below. If there are so many layers that the
/// text is cut off, the result is `None`.
fn file_from_description(text: &str) -> Option<PathBuf> {
    let Some(options) = text.strip_prefix("json:") else { return Some(PathBuf::from(text)) };
    let options: Value = serde_json::from_str(options).ok()?;
    let file = options.pointer("/file/filename").or_else(|| options.get("file.filename"))?;
    Some(PathBuf::from(file.as_str()?))
}

/// The file of a node that was named after it.
fn file_of(node: &str, dir: &Path) -> Option<PathBuf> {
    Some(dir.join(format!("{}.qcow2", node.strip_prefix(OURS)?)))
}

fn merge_failed(reason: &str) -> QmpError {
    QmpError::Merge { reason: reason.to_owned() }
}

fn unexpected(command: &str) -> QmpError {
    QmpError::Unexpected { command: command.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::UnixStream;

    use super::*;
    use agentiso_disk::qcow2_header::{Header, create_overlay};

    /// A QEMU that accepts every command, and exits when it has accepted a merge.
    async fn ends_in_a_merge() -> QmpClient {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let (reading, mut writing) = theirs.into_split();
            let mut lines = BufReader::new(reading).lines();
            writing.write_all(b"{\"QMP\":{}}\n").await.unwrap();
            while let Ok(Some(line)) = lines.next_line().await {
                let command: Value = serde_json::from_str(&line).unwrap();
                let answer = if command["execute"] == "query-fdsets" { json!([]) } else { json!({}) };
                let answer = json!({"return": answer, "id": command["id"]});
                writing.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                if command["execute"] == "block-commit" {
                    return;
                }
            }
        });
        QmpClient::over(ours).await.unwrap()
    }

    #[tokio::test]
    async fn merge_fails_at_once_if_qemu_exits() {
        let dir = tempfile::tempdir().unwrap();
        let [into, child, above] = ["into", "child", "above"].map(|name| dir.path().join(name));
        create_overlay(&above, "child", 1 << 30).unwrap();
        let taken = || above.metadata().unwrap().blocks() * 512;
        assert!(taken() < 1 << 16, "{}", taken());
        let merge = Merge { child, into, above: vec![above.clone()], child_is_head: false, under_head: true };
        let qmp = ends_in_a_merge().await;
        let merged = qmp.commit_layer("head", ("child", "into"), &merge, Duration::from_secs(600));
        let merged = tokio::time::timeout(Duration::from_secs(60), merged).await.expect("it ends at once");
        assert!(matches!(merged, Err(QmpError::Closed)), "{merged:?}");
        // The space for the header of the layer above was allocated before.
        assert!(taken() >= 1 << 16, "{}", taken());
        assert_eq!(Header::read(&above).unwrap().backing_file.as_deref(), Some("child"));
    }

    #[test]
    fn node_file_is_parsed_from_both_forms() {
        assert_eq!(file_from_description("/d/a.qcow2"), Some("/d/a.qcow2".into()));
        let told = r#"json:{"backing": {"driver": "qcow2", "file": {"driver": "file", "filename": "/d/b.qcow2"}},
            "driver": "qcow2", "file": {"driver": "file", "filename": "/d/a.qcow2"}}"#;
        assert_eq!(file_from_description(told), Some("/d/a.qcow2".into()));
        assert_eq!(file_from_description(&told[..60]), None);
    }

    #[test]
    fn node_name_leads_back_to_its_file() {
        let dir = Path::new("/data/w");
        for file in ["/data/w/disk.qcow2", "/data/w/3fd0c1a2b4e59687.qcow2"] {
            let node = node_name(Path::new(file));
            assert_eq!(file_of(&node, dir), Some(file.into()));
            assert!(file_node(&node).len() <= 31, "{node}");
        }
        assert_eq!(file_of("#block123", dir), None);
        let by_itself = json!({"node-name": "#block1", "file": "/data/w/layer0.qcow2"});
        let expected = DiskNode { node: "#block1".to_owned(), file: "/data/w/layer0.qcow2".into() };
        assert_eq!(disk_node(&by_itself, dir), Some(expected));
    }
}
