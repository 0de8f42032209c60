//! Git clones from allowed names only, over HTTP, HTTPS and git's own protocol.

use agentiso_e2e::guest::policy;
use agentiso_e2e::internet::SERVER;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Output, host_or_skip};
use serde_json::json;

use crate::Backend;

pub(crate) fn git_clones_by_allowed_names_only(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace_with(json!({"network_policy": {"allow_domains": ["good.test:80,443"]}}));
    ws.write("/root/authority.pem", &internet.authority());
    let clone = |url: &str, more: &str| -> Output {
        ws.exec(&format!(
            "rm -rf /root/project; GIT_SSL_CAINFO=/root/authority.pem GIT_TERMINAL_PROMPT=0 \
             git {more} clone -q {url} /root/project"
        ))
    };
    for scheme in ["http", "https"] {
        let cloned = clone(&format!("{scheme}://good.test/project.git"), "");
        assert_eq!(cloned.exit_code, 0, "{scheme}: {cloned:?}");
        assert_eq!(ws.sh("cat /root/project/README"), "hello from the repository");

        // Another name of the same address is refused, both by name and by its known address.
        let by_name = clone(&format!("{scheme}://bad.test/project.git"), "");
        assert_ne!(by_name.exit_code, 0);
        assert!(by_name.stderr.contains("Could not resolve host"), "{by_name:?}");
        let known = format!(
            "-c http.curloptResolve=bad.test:80:{SERVER} -c http.curloptResolve=bad.test:443:{SERVER}"
        );
        let by_address = clone(&format!("{scheme}://bad.test/project.git"), &known);
        assert_ne!(by_address.exit_code, 0, "{by_address:?}");
        let literal = clone(&format!("{scheme}://{SERVER}/project.git"), "-c http.sslVerify=false");
        assert_ne!(literal.exit_code, 0, "{literal:?}");
    }
    assert!(internet.asked_for("bad.test").is_empty(), "{:?}", internet.asked());
    assert!(internet.asked_for(&format!("http {SERVER} {SERVER}")).is_empty(), "{:?}", internet.asked());

    // Git's own protocol names its host as well. A request that names another host is not sent.
    let before = internet.asked_for("git ").len();
    assert_ne!(clone("git://good.test/project.git", "").exit_code, 0, "not at that port");
    policy(&ws, json!({"allow_domains": ["good.test:9418"]}));
    let cloned = clone("git://good.test/project.git", "");
    assert_eq!(cloned.exit_code, 0, "{cloned:?}");
    assert_eq!(ws.sh("cat /root/project/README"), "hello from the repository");
    let named = "rm -rf /root/project; GIT_OVERRIDE_VIRTUAL_HOST=bad.test \
                 git clone -q git://good.test/project.git /root/project";
    assert_ne!(ws.exec(named).exit_code, 0);
    assert_ne!(clone("git://bad.test/project.git", "").exit_code, 0);
    assert_eq!(internet.asked_for("git ").len(), before + 1, "{:?}", internet.asked());

    policy(&ws, json!({"allow_domains": []}));
    let offline = clone("https://good.test/project.git", "");
    assert!(offline.stderr.contains("Could not resolve host"), "{offline:?}");
}
