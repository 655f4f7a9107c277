//! Writes certificates for tests into the folder that the argument names: the tests of the bindings start this.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the tests of the core use more of it"
)]
#[path = "../tests/tls/certificates.rs"]
mod certificates;

fn main() {
    let folder = std::env::args_os().nth(1).map(std::path::PathBuf::from);
    let folder = folder.expect("usage: test_certificates FOLDER");
    certificates::write_all(|name| folder.join(name));
}
