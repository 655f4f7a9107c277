//! Files that cannot be used: what is wrong is said, with the name of the file.

use crate::certificates::{Authority, Wish};
use crate::support::{World, start};
use fairlock::node::{ClientAuth, Settings};
use fairlock::{Client, ErrorKind, Server, ServerError};
use std::fs;
use std::path::Path;

/// Starts a node on these files, and returns the file and the words of its refusal.
fn refusal(certificate: &Path, key: &Path) -> (std::path::PathBuf, String) {
    let server = Server::builder()
        .listen("127.0.0.1:0")
        .tls(certificate, key);
    match start(server) {
        Err(ServerError::TlsFile { path, problem }) => (path, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_does_not_start_with_files_that_it_cannot_use() {
    let world = World::new();
    let [certificate, key] = world.identity("server");
    let broken = world.folder.file("broken.pem");
    let check = |certificate: &Path, key: &Path, file: &Path, words: &str| {
        let (path, problem) = refusal(certificate, key);
        assert_eq!(path, file, "{problem}");
        assert!(problem.contains(words), "{problem}");
    };
    check(&broken, &key, &broken, "No such file");
    fs::write(&broken, "hello").expect("written");
    check(&broken, &key, &broken, "there is no certificate in it");
    check(
        &certificate,
        &broken,
        &broken,
        "there is no private key in it",
    );
    let cut = fs::read_to_string(&certificate).expect("it is there");
    fs::write(&broken, &cut[..cut.len() / 2]).expect("written");
    check(&broken, &key, &broken, "it is no PEM file");
    let half = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(&broken, half).expect("written");
    check(&broken, &key, &broken, "a certificate in it is broken");
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(&broken, encrypted).expect("written");
    check(&certificate, &broken, &broken, "the key is encrypted");
    let half = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    fs::write(&broken, half).expect("written");
    check(&certificate, &broken, &broken, "the key cannot be used");
    let [_, other_key] = world.identity("stranger");
    check(
        &certificate,
        &other_key,
        &other_key,
        "the key does not match the certificate in",
    );
    let [expired, expired_key] = world.identity("expired");
    check(&expired, &expired_key, &expired, "it expired");
    let ca = world.folder.file("ca.pem");
    check(&ca, &key, &ca, "it is the certificate of a CA");
    let [client, client_key] = world.identity("client");
    check(
        &client,
        &client_key,
        &client,
        "it is made for another purpose",
    );
}

#[test]
fn a_node_does_not_start_with_a_ca_that_it_cannot_use() {
    let world = World::new();
    let none = world.folder.file("none.pem");
    let builder = world.builder("server").tls_client_ca(&none);
    let Err(ServerError::TlsFile { path, .. }) = start(builder) else {
        panic!("it started");
    };
    assert_eq!(path, none);
    let mut settings = Settings::default();
    settings.listen = Some("127.0.0.1:0".into());
    settings.tls_ca = Some(none.clone());
    let [certificate, key] = world.identity("server");
    let builder = Server::builder().settings(settings).tls(certificate, key);
    let Err(ServerError::TlsFile { path, .. }) = start(builder) else {
        panic!("it started");
    };
    assert_eq!(path, none);
}

#[test]
fn a_chain_leads_to_the_ca() {
    let world = World::new();
    let [certificate, key] = world.identity("server");
    // What stands behind the first certificate is sent along.
    let extra = Authority::new("between");
    let between = world.folder.file("between.pem");
    extra.write(&between);
    let mut chain = fs::read(&certificate).expect("it is there");
    chain.extend(fs::read(&between).expect("it is there"));
    fs::write(&certificate, chain).expect("written");
    let server = start(world.builder("server")).expect("it starts");
    world.client(&server).connected().call().expect("trusted");
    let _ = key;
}

#[test]
fn settings_for_tls_go_together() {
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().expect_err("they do not go together").name
    };
    assert_eq!(refused(&|s| s.tls_cert = Some("x".into())), "tls_cert");
    assert_eq!(refused(&|s| s.tls_key = Some("x".into())), "tls_key");
    assert_eq!(
        refused(&|s| s.tls_client_ca = Some("x".into())),
        "tls_client_ca"
    );
    assert_eq!(refused(&|s| s.tls_ca = Some("x".into())), "tls_ca");
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        assert_eq!(
            refused(&|s| s.tls_client_auth = Some(auth)),
            "tls_client_auth"
        );
        let without_ca = refused(&|s| {
            s.tls_cert = Some("x".into());
            s.tls_key = Some("x".into());
            s.tls_client_auth = Some(auth);
        });
        assert_eq!(without_ca, "tls_client_auth");
    }
}

#[test]
fn beyond_loopback_client_certificates_are_enough_if_they_are_required() {
    let check = |auth| {
        let mut settings = Settings::default();
        settings.listen = Some("0.0.0.0:0".into());
        settings.tls_cert = Some("x".into());
        settings.tls_key = Some("x".into());
        settings.tls_client_ca = Some("x".into());
        settings.tls_client_auth = auth;
        settings.check().map_err(|error| error.name)
    };
    assert_eq!(check(None), Ok(()));
    assert_eq!(check(Some(ClientAuth::Required)), Ok(()));
    assert_eq!(check(Some(ClientAuth::Optional)), Err("listen".into()));
    assert_eq!(check(Some(ClientAuth::Off)), Err("listen".into()));
}

#[test]
fn a_client_with_files_that_it_cannot_use_is_not_made() {
    let world = World::new();
    let file = |name: &str| world.folder.file(name);
    let refused = |builder: fairlock::ClientBuilder, words: &[&str]| {
        let error = builder.build().expect_err("it cannot be used");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        for words in words {
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    let base = || Client::builder().servers("localhost:1");
    refused(base().ca_file(file("no.pem")), &["no.pem", "No such file"]);
    refused(
        base().ca_file(file("client.key")),
        &["client.key", "no certificate"],
    );
    let ca = || base().ca_file(file("ca.pem"));
    refused(
        ca().cert_file(file("client.pem")),
        &["cert_file", "key_file"],
    );
    refused(
        ca().key_file(file("client.key")),
        &["key_file", "cert_file"],
    );
    let mixed = ca()
        .cert_file(file("client.pem"))
        .key_file(file("server.key"));
    refused(mixed, &["server.key", "does not match", "client.pem"]);
    let late = ca()
        .cert_file(file("expired.pem"))
        .key_file(file("expired.key"));
    refused(late, &["expired.pem", "it expired"]);
    refused(ca().server_name("not a name"), &["server_name"]);
    refused(ca().tls(false), &["ca_file", "tls"]);
}

#[test]
fn a_certificate_for_servers_alone_may_be_shown_by_nobody_else() {
    let world = World::new();
    let ca = Authority::new("ca of servers");
    let [ca_file, pem, key] = ["s-ca.pem", "s.pem", "s.key"].map(|name| world.folder.file(name));
    ca.write(&ca_file);
    let wish = Wish {
        purposes: vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth],
        ..Wish::default()
    };
    ca.issue(wish, &pem, &key);
    let builder = world.builder("server").tls_client_ca(&ca_file);
    let server = start(builder).expect("it starts");
    let client = world.options(&server).cert_file(&pem).key_file(&key);
    let error = crate::support::refused(client);
    assert!(error.to_string().contains("does not accept"), "{error}");
}
