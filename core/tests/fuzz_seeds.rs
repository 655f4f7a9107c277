//! Goal: what fuzzing found stays found. Method: the kept inputs of each fuzz target run through the
//! same body as in the fuzzer, on every machine and without nightly.

use std::path::Path;

#[cfg(feature = "server")]
#[path = "../../fuzz/bodies/engine.rs"]
mod engine;
#[path = "../../fuzz/bodies/line.rs"]
mod line;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/seeds")
        .join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the kept inputs are part of the sources") {
        let path = entry.expect("a readable folder").path();
        println!("{}", path.display());
        check(&std::fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn line_parsers_hold_over_the_kept_inputs() {
    replay("line", line::check);
}

#[cfg(feature = "server")]
#[test]
fn the_engine_agrees_with_its_model_over_the_kept_inputs() {
    replay("engine", |data| {
        engine::check(data);
    });
}
