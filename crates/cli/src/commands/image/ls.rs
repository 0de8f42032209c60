//! `agentiso image ls`: lists base images.

use std::process::ExitCode;

use agentiso_image::manifest::Origin;
use jiff::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// List base images
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  agentiso image ls
  agentiso image ls --json | jq -r '.[].name'"
)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let images = agentiso_image::list(&context.image_dirs())?;
    let default = context.config.storage.base_image.as_str();
    if arguments.json {
        let values: Vec<_> = images
            .iter()
            .map(|image| {
                json!({
                    "name": image.manifest.name,
                    "id": image.manifest.id,
                    "default": image.manifest.name == default,
                    "origin": image.manifest.origin,
                    "packages": image.manifest.packages.len(),
                    "filesystem_bytes": image.manifest.filesystem.bytes,
                    "disk_bytes": image.manifest.files.get("disk.qcow2").map(|file| file.bytes),
                    "disk": image.disk,
                    "created_at": image.manifest.created_at,
                })
            })
            .collect();
        output::json(&values)?;
        return Ok(ExitCode::SUCCESS);
    }
    if images.is_empty() {
        output::line(&format!("no images; build the default one with `agentiso image build {default}`"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = Timestamp::now();
    let rows = images
        .iter()
        .map(|image| {
            let manifest = &image.manifest;
            let mark = if manifest.name == default { " (default)" } else { "" };
            let size =
                manifest.files.get("disk.qcow2").map_or_else(String::new, |file| output::size(file.bytes));
            [
                format!("{}{mark}", manifest.name),
                manifest.id.chars().take(12).collect(),
                size,
                origin(&manifest.origin),
                output::age(manifest.created_at, now),
            ]
        })
        .collect();
    output::line(&output::table(["NAME", "ID", "SIZE", "FROM", "CREATED"], rows))?;
    Ok(ExitCode::SUCCESS)
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Recipe { recipe, suite, .. } => format!("{recipe} on Debian {suite}"),
        Origin::ImportedTar { file_name } => file_name.clone(),
        Origin::ImportedDirectory => "a directory".to_owned(),
    }
}
