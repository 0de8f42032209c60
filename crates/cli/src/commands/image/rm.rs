//! `agentiso image rm`: removes base images that no workspace uses.

use std::process::ExitCode;

use agentiso_core::names::ImageName;

use super::{parse_name, users};
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Remove base images that no workspace uses
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "remove",
    after_help = "\
Examples:
  agentiso image rm alpine"
)]
pub(crate) struct Arguments {
    #[arg(required = true, value_name = "NAME", value_parser = parse_name)]
    names: Vec<ImageName>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    for name in &arguments.names {
        let in_use = |image: &ImageName| users(context, image);
        runtime::block_on(agentiso_image::remove(&context.image_dirs(), name, &in_use))?.map_err(
            |error| {
                let failure = Failure::from(error);
                failure.maybe_hint(Some(
                    "`agentiso image ls` lists the images, `agentiso ps` shows which workspaces use them"
                        .to_owned(),
                ))
            },
        )?;
        output::line(&format!("image {name} removed"))?;
    }
    Ok(ExitCode::SUCCESS)
}
