//! The templates of the default image and size, made in the background as soon as the daemon runs. Other sizes
//! get theirs after their first boot, from the host's own keeper.

use std::sync::Arc;

use crate::shared::Shared;

pub(crate) async fn run(shared: Arc<Shared>) {
    let image = shared.config.storage.base_image.clone();
    if let Err(failure) = shared.machines.image(&image) {
        tracing::info!(%failure, "no templates are made yet");
        return;
    }
    let resources = shared.config.default_resources();
    tokio::select! {
        biased;
        () = shared.closing.cancelled() => {}
        made = shared.machines.prepare(&image, resources) => match made {
            Ok(()) => tracing::info!(%image, ?resources, "templates are ready"),
            Err(error) => tracing::warn!(%image, %error, "no template; machines will boot instead"),
        },
    }
}
