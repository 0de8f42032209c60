//! Prepares the files that a workspace boots from, and shows how the library is called.
//!
//! ```text
//! prepare DATA kernel                 the newest packaged kernel
//! prepare DATA initramfs              the initramfs for it, with the embedded agent
//! prepare DATA build RECIPE           an image from packages
//! prepare DATA import NAME SOURCE     an image from a tar or a directory
//! prepare DATA list
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::path::{Path, PathBuf};

use agentiso_core::names::ImageName;
use agentiso_image::{
    Dirs, Existing, KernelSource, PackageSource, Progress, Recipe, build, guest_agent, import, initramfs,
    kernel, list,
};
use anyhow::{Context, bail};

fn show(progress: Progress) {
    let percent = progress.percent.map(|percent| format!(" {percent}%")).unwrap_or_default();
    eprintln!("{}{percent} {}", progress.phase.label(), progress.detail.unwrap_or_default());
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (data, words) = words.split_first().context("the data directory is missing")?;
    let data = PathBuf::from(data);
    let dirs = Dirs {
        images: data.join("images"),
        kernels: data.join("kernels"),
        initramfs: data.join("initramfs"),
    };
    let packages = PackageSource::default();
    match words {
        ["kernel"] => {
            println!("{:#?}", kernel::ensure(&dirs, &KernelSource::Packages(packages), false, &show).await?);
        }
        ["initramfs"] => {
            let kernel = kernel::ensure(&dirs, &KernelSource::Packages(packages), false, &show).await?;
            println!("{}", initramfs::ensure(&dirs, &kernel, guest_agent()?).await?.display());
        }
        ["build", recipe] => {
            let recipe = Recipe::parse(recipe).context("no such recipe")?;
            let name = ImageName::parse(recipe.name())?;
            let image = build(&dirs, &name, recipe, &packages, Existing::Keep, &show).await?;
            println!("{} {}", image.disk.display(), image.manifest.id);
        }
        ["import", name, source] => {
            let image = import(&dirs, &ImageName::parse(name)?, Path::new(source), &show).await?;
            println!("{} {}", image.disk.display(), image.manifest.id);
        }
        ["list"] => {
            for image in list(&dirs)? {
                println!("{} {} packages", image.manifest.name, image.manifest.packages.len());
            }
        }
        _ => bail!("see the top of examples/prepare.rs"),
    }
    Ok(())
}
