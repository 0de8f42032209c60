//! One task that makes templates in the background, one after the other: a template is a boot, and two at once
//! would only slow down the people who are waiting.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::shared::{Shared, TemplateWish};

/// Wishes that may wait. There are few sizes and images on one host; who finds the queue full wishes again.
pub(crate) const QUEUE_LENGTH: usize = 16;

pub(crate) async fn run(shared: Arc<Shared>, mut wishes: mpsc::Receiver<TemplateWish>) {
    let default = shared.config.storage.base_image.clone();
    match shared.machines.image(&default) {
        Ok(image) => shared.wish_for_template(image, shared.config.default_resources()),
        Err(failure) => tracing::info!(%failure, "no templates are made yet"),
    }
    loop {
        let wish = tokio::select! {
            biased;
            () = shared.closing.cancelled() => return,
            wish = wishes.recv() => match wish {
                Some(wish) => wish,
                None => return,
            },
        };
        let TemplateWish { image, resources } = wish;
        tokio::select! {
            biased;
            () = shared.closing.cancelled() => return,
            made = shared.machines.prepare(&image.name, resources) => match made {
                Ok(()) => tracing::info!(image = %image.name, ?resources, "templates are ready"),
                Err(error) => tracing::warn!(image = %image.name, %error, "no template; machines will boot instead"),
            },
        }
    }
}
