//! TLS through the real binary: settings, client commands, the environment, SIGHUP.

use crate::certificates;
use crate::support::{Folder, Server, eventually, outcome};
use rustix::process::Signal;
use std::path::Path;

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    certificates::write_all(|name| Path::new(&folder.file(name)).to_owned());
    folder
}

fn start(folder: &Folder, more: &[&str]) -> Server {
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.file(name));
    let mut arguments = vec!["--tls-cert", &certificate, "--tls-key", &key];
    arguments.extend(more);
    Server::start_with(&arguments, &[])
}

/// Goal: where a certificate is wrong, nobody is sent to look for the server.
#[test]
fn advice_to_look_for_the_server_does_not_follow_an_error_of_tls() {
    let folder = folder("tls-advice");
    let server = start(&folder, &[]);
    let other = folder.file("other-ca.pem");
    let refused = server.does(&["locks", "--ca-file", &other]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(
        refused.err.contains("certificate") && !refused.err.contains("is a server running there"),
        "{refused:?}"
    );
}

#[test]
fn client_commands_take_the_files_as_arguments_and_from_the_environment() {
    let folder = folder("tls-commands");
    let clients = folder.file("ca.pem");
    let server = start(&folder, &["--tls-client-ca", &clients]);
    let [ca, certificate, key] =
        ["ca.pem", "client.pem", "client.key"].map(|name| folder.file(name));
    let arguments = [
        "--ca-file",
        &ca,
        "--cert-file",
        &certificate,
        "--key-file",
        &key,
    ];
    let mut run = vec!["run"];
    run.extend(arguments);
    run.extend(["k", "--", "echo", "held"]);
    let held = server.does(&run);
    assert_eq!((held.code, held.out.as_str()), (0, "held\n"), "{held:?}");
    let mut bench = vec!["bench", "--seconds", "0.2", "--connections", "2", "--json"];
    bench.extend(arguments);
    assert_eq!(server.does(&bench).code, 0);

    let mut status = server.fairlock(["status"]);
    status.env("FAIRLOCK_CA_FILE", &ca);
    status.env("FAIRLOCK_CERT_FILE", &certificate);
    status.env("FAIRLOCK_KEY_FILE", &key);
    let status = outcome(status);
    assert_eq!(status.code, 0, "{status:?}");

    let without = server.does(&["status", "--ca-file", &ca]);
    assert_eq!(without.code, 69, "{without:?}");
    assert!(
        without.err.contains("wants a certificate of this client"),
        "{without:?}"
    );
    let plain = server.does(&["status"]);
    assert_eq!(plain.code, 77, "{plain:?}");
    assert!(plain.err.contains("this port speaks TLS"), "{plain:?}");
    let wrong = server.does(&["status", "--ca-file", "/no/such.pem"]);
    assert_eq!(wrong.code, 64, "{wrong:?}");
    assert!(wrong.err.contains("/no/such.pem"), "{wrong:?}");
}

#[test]
fn sighup_reads_the_certificates_again_and_ends_nothing() {
    let folder = folder("tls-sighup");
    let server = start(&folder, &[]);
    let status = |ca: &str| server.does(&["status", "--ca-file", &folder.file(ca)]).code;
    assert_eq!(status("ca.pem"), 0);
    for end in ["pem", "key"] {
        let (from, to) = (format!("stranger.{end}"), format!("server.{end}"));
        std::fs::copy(folder.file(&from), folder.file(&to)).expect("copied");
    }
    server.signal(Signal::HUP);
    eventually("the new certificate", || status("other-ca.pem") == 0);
    let mut process = server.process();
    process.error_with("the TLS certificates have been read again");
    std::fs::write(folder.file("server.pem"), "nonsense").expect("written");
    process.signal(Signal::HUP);
    let line = process.error_with("TLS file");
    assert!(
        line.contains("server.pem: there is no certificate in it"),
        "{line}"
    );
    assert!(
        line.contains("the certificates that were read before stay in use"),
        "{line}"
    );
    process.signal(Signal::TERM);
    assert_eq!(process.end().code, 0);
}

#[test]
fn a_server_without_tls_goes_on_after_sighup() {
    let server = Server::start();
    server.signal(Signal::HUP);
    assert_eq!(server.does(&["status"]).code, 0);
}
