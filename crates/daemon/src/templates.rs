//! Makes the templates of the default image and size, in the background as soon as the daemon runs. Other sizes get
//! theirs after their first boot, from `agentiso-host`.

use std::sync::Arc;

use crate::shared::Shared;

pub(crate) async fn run(shared: Arc<Shared>) {
    let image = shared.config.storage.base_image.clone();
    if let Err(failure) = shared.vms.image(&image) {
        tracing::info!(%failure, "cannot create templates yet");
        return;
    }
    let resources = shared.config.default_resources();
    tokio::select! {
        biased;
        () = shared.closing.cancelled() => {}
        made = shared.vms.prepare(&image, resources) => match made {
            Ok(()) => tracing::info!(%image, ?resources, "templates are ready"),
            Err(error) => tracing::warn!(%image, %error, "cannot create templates; VMs will cold boot instead"),
        },
    }
}
