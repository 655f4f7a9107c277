//! What the documents say of the settings, compared with the settings. `UPDATE=1` rewrites it.

use fairlock::node::{Setting, SettingKind, Settings};
use std::path::Path;

#[allow(dead_code, reason = "the server finds them, the table only names them")]
#[path = "../src/defaults.rs"]
mod defaults;

const BEGIN: &str =
    "<!-- settings: made by `UPDATE=1 cargo test -p fairlock-server --test documents` -->\n";
const END: &str = "<!-- end of settings -->\n";

/// Goal: nobody has to keep the table by hand. Method: it is made anew and compared.
#[test]
fn the_table_of_settings_is_that_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let text = std::fs::read_to_string(&path).expect("docs/operations.md is there");
    let (before, rest) = text.split_once(BEGIN).expect("the table has a beginning");
    let (shown, after) = rest.split_once(END).expect("the table has an end");
    let table = table();
    if std::env::var_os("UPDATE").is_some() {
        let new = format!("{before}{BEGIN}{table}{END}{after}");
        std::fs::write(&path, new).expect("docs/operations.md can be written");
        return;
    }
    assert_eq!(
        shown, table,
        "docs/operations.md is not up to date; UPDATE=1 writes it anew"
    );
}

fn table() -> String {
    let defaults = Settings::default();
    let mut table = String::from("| setting | default | meaning |\n|---|---|---|\n");
    for setting in Settings::ALL {
        let default = match (
            defaults::in_words(setting.name),
            defaults.show(setting.name),
        ) {
            (Some(words), _) => words.to_owned(),
            (None, Some(default)) => format!("`{default}`{}", unit(setting)),
            (None, None) => "none".to_owned(),
        };
        table.push_str(&format!(
            "| `{}` | {default} | {}{} |\n",
            setting.name,
            setting.help.trim().replace('\n', " ").replace('|', "\\|"),
            if setting.kind == SettingKind::Secret {
                " In the environment or the file only."
            } else {
                ""
            },
        ));
    }
    table
}

fn unit(setting: &Setting) -> &'static str {
    match setting.kind {
        SettingKind::Seconds => " s",
        _ => "",
    }
}
