//! The header that is checked in is what the sources say. `UPDATE=1` writes it anew.

use std::path::Path;

#[test]
fn the_header_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a good cbindgen.toml");
    let mut written = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_crate(root)
        .generate()
        .expect("sources that cbindgen can read")
        .write(&mut written);
    let written = String::from_utf8(written)
        .expect("a header is text")
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));

    let path = root.join("include/fairlock.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &written).expect("a folder that can be written");
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == checked_in,
        "fairlock.h is not what the sources say; write it anew with\n    UPDATE=1 cargo test -p fairlock-c --test header"
    );
}
