//! `agentiso image build`: builds a base image from Debian packages.

use std::process::ExitCode;

use agentiso_core::names::ImageName;
use agentiso_image::{Existing, Recipe};

use super::{parse_name, users};
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Build a base image from Debian packages
///
/// Recipes: debian-dev (python3, git, curl, jq, ripgrep, a C toolchain), debian-minimal (git, python3) and
/// debian-system (the same with systemd). Packages come from the host's own apt sources unless the configuration
/// names a mirror. No root is needed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso image build debian-dev
  agentiso image build debian-minimal --name base
  agentiso image build debian-dev --force       rebuild with newer packages")]
pub(crate) struct Arguments {
    /// debian-dev, debian-minimal or debian-system
    #[arg(default_value = "debian-dev")]
    recipe: String,
    /// Name of the image [default: the name of the recipe]
    #[arg(long, value_parser = parse_name)]
    name: Option<ImageName>,
    /// Replace an existing image
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Some(recipe) = Recipe::parse(&arguments.recipe) else {
        let known: Vec<_> = Recipe::ALL.iter().map(|recipe| recipe.name()).collect();
        return Err(Failure::usage(format!("there is no recipe {:?}", arguments.recipe))
            .hint(format!("known recipes: {}", known.join(", "))));
    };
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => ImageName::parse(recipe.name())?,
    };
    let in_use = |image: &ImageName| users(context, image);
    let existing = if arguments.force { Existing::Replace { users: &in_use } } else { Existing::Keep };
    let there = !arguments.force && agentiso_image::get(&context.image_dirs(), &name)?.is_some();
    if there {
        output::line(&format!("image {name} exists already; --force rebuilds it"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let display = Display::start(&format!("image {name}"));
    let image = runtime::block_on(agentiso_image::build(
        &context.image_dirs(),
        &name,
        recipe,
        &context.package_source(),
        existing,
        &display.reporter(),
    ))??;
    display.done(&format!("built, {}", output::size(image.manifest.filesystem.bytes)));
    output::line(&format!("{name} {}", image.manifest.id))?;
    Ok(ExitCode::SUCCESS)
}
