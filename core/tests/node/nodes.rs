//! Nodes inside the test's own process.

use fairlock::Server;
use fairlock::node::Settings;

/// A node on a free port, with changed settings.
pub(crate) fn server_with(change: impl FnOnce(&mut Settings)) -> Server {
    let mut settings = Settings::default();
    settings.listen = Some("127.0.0.1:0".to_owned());
    change(&mut settings);
    Server::builder()
        .settings(settings)
        .start_blocking()
        .expect("a node on a free port starts")
}

/// A node on a free port.
pub(crate) fn server() -> Server {
    server_with(|_| {})
}
