//! `agentiso image import`: makes a base image from a tar archive or a directory.

use std::path::PathBuf;
use std::process::ExitCode;

use agentiso_core::names::ImageName;

use super::parse_name;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Create a base image from a root file system: a tar archive or a directory
///
/// The archive may be uncompressed or compressed with gzip, xz or zstd, for example the output of `docker export` or
/// mmdebstrap. It must contain /bin/sh; the kernel is agentiso's own.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  docker export \"$(docker create alpine)\" > alpine.tar
  agentiso image import alpine alpine.tar
  agentiso create box --image alpine
  agentiso image import mine ./rootfs/")]
pub(crate) struct Arguments {
    /// Name of the new image
    #[arg(value_parser = parse_name)]
    name: ImageName,
    /// The archive or directory
    source: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let name = &arguments.name;
    let display = Display::start(&format!("image {name}"));
    let image = runtime::block_on(agentiso_image::import(
        &context.image_dirs(),
        name,
        &arguments.source,
        &display.reporter(),
    ))??;
    display.done(&format!("imported, {}", output::size(image.manifest.filesystem.bytes)));
    output::line(&format!("{name} {}", image.manifest.id))?;
    Ok(ExitCode::SUCCESS)
}
